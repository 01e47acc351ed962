"""What Kubernetes and the projects whose objects the chart makes publish of those objects (an
OpenAPI file, and definitions of custom resources), as JSON schemas for kubeconform. Unknown fields
are errors, as with `kubectl apply --validate=strict`. Rules in CEL are left to an API server.

    kubernetes_schemas.py FOLDER

makes those of what deploy/setup.sh --kubernetes has fetched.
"""

import json
import os
import pathlib
import sys

import yaml

QUANTITY = {"oneOf": [{"type": "string"}, {"type": "number"}]}
INT_OR_STRING = {"oneOf": [{"type": "string"}, {"type": "integer"}]}
# Keywords that JSON schemas know, and that carry no schemas of their own.
PLAIN = ("type", "enum", "required", "pattern", "minLength", "maxLength", "minimum", "maximum",
         "minItems", "maxItems", "minProperties", "maxProperties", "uniqueItems", "$ref")


def strict(schema):
    """The same schema; objects whose fields are known have no others."""
    if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "int-or-string":
        return INT_OR_STRING
    made = {key: schema[key] for key in PLAIN if key in schema}
    if "pattern" in made and "(?" in made["pattern"]:
        del made["pattern"]
    for key in ("oneOf", "anyOf", "allOf"):
        if key in schema:
            made[key] = [constraint(one) for one in schema[key]]
    if "not" in schema:
        made["not"] = constraint(schema["not"])
    if "items" in schema:
        made["items"] = strict(schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        made["additionalProperties"] = strict(schema["additionalProperties"])
    if "properties" in schema:
        made["properties"] = {name: strict(one) for name, one in schema["properties"].items()}
        if not (schema.get("x-kubernetes-preserve-unknown-fields") or
                schema.get("additionalProperties") or
                schema.get("x-kubernetes-embedded-resource")):
            made["additionalProperties"] = False
    return made


def constraint(schema):
    """Beneath oneOf and its like: a condition on fields that are declared elsewhere."""
    made = {key: schema[key] for key in PLAIN if key in schema}
    for key in ("oneOf", "anyOf", "allOf"):
        if key in schema:
            made[key] = [constraint(one) for one in schema[key]]
    if "not" in schema:
        made["not"] = constraint(schema["not"])
    if "properties" in schema:
        made["properties"] = {name: constraint(one) for name, one in schema["properties"].items()}
    return made


def references(schema):
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref" and isinstance(value, str):  # there is also a field of this name
                yield value.rpartition("/")[2]
            else:
                yield from references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from references(value)


def file_name(group, version, kind):
    """What kubeconform asks for with {{.ResourceKind}}{{.KindSuffix}}.json."""
    parts = [kind.lower()] + ([group.split(".")[0]] if group else []) + [version]
    return "-".join(parts) + ".json"


def write(folder, group, version, kind, schema):
    schema.setdefault("properties", {}).update(
        kind={"const": kind}, apiVersion={"const": f"{group}/{version}" if group else version})
    schema["required"] = sorted({*schema.get("required", ()), "apiVersion", "kind"})
    (folder / file_name(group, version, kind)).write_text(json.dumps(schema))


def from_openapi(text, folder):
    definitions = {name: strict(one) for name, one in json.loads(text)["definitions"].items()}
    for name in definitions:
        if name.endswith(".api.resource.Quantity"):
            definitions[name] = QUANTITY
        elif name.endswith(".util.intstr.IntOrString"):
            definitions[name] = INT_OR_STRING
    for name, source in json.loads(text)["definitions"].items():
        kinds = source.get("x-kubernetes-group-version-kind", [])
        if len(kinds) != 1 or "metadata" not in source["properties"] or \
                kinds[0]["kind"].endswith("List"):
            continue
        schema = dict(definitions[name], properties=dict(definitions[name]["properties"]))
        needed, waiting = {}, list(references(schema))
        while waiting:
            one = waiting.pop()
            if one not in needed:
                needed[one] = definitions[one]
                waiting.extend(references(definitions[one]))
        schema["definitions"] = needed
        write(folder, kinds[0]["group"], kinds[0]["version"], kinds[0]["kind"], schema)


def from_crd(text, folder, metadata):
    for document in yaml.load_all(text, Loader=yaml.CSafeLoader):
        if not document or document.get("kind") != "CustomResourceDefinition":
            continue
        spec = document["spec"]
        for version in spec["versions"]:
            schema = strict(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = metadata
            write(folder, spec["group"], version["name"], spec["names"]["kind"], schema)


def convert(source, folder):
    """The files that deploy/setup.sh --kubernetes left in `source`, as schemas in `folder`."""
    folder = pathlib.Path(folder)
    from_openapi((source / "swagger.json").read_text(), folder)
    config_map = json.loads((folder / "configmap-v1.json").read_text())
    definitions = config_map["definitions"]
    meta = definitions["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]

    def inline(schema):
        if isinstance(schema, dict):
            if "$ref" in schema:
                return inline(definitions[schema["$ref"].rpartition("/")[2]])
            return {key: inline(value) for key, value in schema.items()}
        return schema

    for path in sorted((source / "crds").glob("*.yaml")):
        from_crd(path.read_text(), folder, inline(meta))


def main():
    cache = os.environ.get("WEFT_CACHE")
    if len(sys.argv) != 2 or not cache:
        sys.exit("usage: source deploy/env.sh; kubernetes_schemas.py FOLDER")
    source, folder = pathlib.Path(cache) / "kubernetes", pathlib.Path(sys.argv[1])
    if not (source / "installed").exists():
        sys.exit(f"{source} is missing: run deploy/setup.sh --kubernetes")
    folder.mkdir(parents=True, exist_ok=True)
    convert(source, folder)
    print(f"{len(list(folder.glob('*.json')))} schemas in {folder}")


if __name__ == "__main__":
    main()
