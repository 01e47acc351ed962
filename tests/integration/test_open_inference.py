"""The Open Inference Protocol v2: health and metadata as Triton's client asks for them over gRPC and
anybody over HTTP, with and without keys; inference is refused with the way to it."""

import json
import pathlib
import tempfile
import unittest

import grpc
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from observe_load import TENANTS, key_file, key_of
from weft_server import ROOT, WeftServer, run_tests

OWN_METHODS = {"ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata",
               "ModelInfer"}


def shape(message):
    """Fields of a message type by number, with those of the messages in it."""
    return {field.number: (field.name, field.type, field.is_repeated,
                           field.message_type and shape(field.message_type))
            for field in message.fields}


class OpenInferenceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = WeftServer().start()
        cls.client = triton.InferenceServerClient(cls.server.grpc)
        cls.name = json.loads(cls.server.request("GET", "/v1/models")[2])["data"][0]["id"]

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.server.stop()

    def get(self, path, status=200):
        found, _, body = self.server.request("GET", path)
        self.assertEqual(found, status, body)
        return json.loads(body)

    def test_health(self):
        self.assertTrue(self.client.is_server_live())
        self.assertTrue(self.client.is_server_ready())
        self.assertEqual(self.get("/v2/health/live"), {"live": True})
        self.assertEqual(self.get("/v2/health/ready"), {"ready": True})
        for name, version, ready in ((self.name, "", True), (self.name, "1", True),
                                     (self.name, "2", False), ("quux", "", False)):
            self.assertEqual(self.client.is_model_ready(name, version), ready, (name, version))
            path = f"/v2/models/{name}" + (f"/versions/{version}" if version else "")
            answer = self.get(path + "/ready", 200 if ready else 404)
            self.assertEqual("error" in answer, not ready, answer)

    def test_metadata(self):
        server = self.client.get_server_metadata()
        version = self.get("/version")["version"]
        self.assertEqual((server.name, server.version), ("weft", version))
        self.assertEqual(self.get("/v2"), {"name": "weft", "version": version, "extensions": []})
        expected = {"name": self.name, "versions": ["1"], "platform": "weft",
                    "inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1]}],
                    "outputs": [{"name": "text_output", "datatype": "BYTES", "shape": [-1]}]}
        self.assertEqual(self.get(f"/v2/models/{self.name}"), expected)
        self.assertEqual(self.get(f"/v2/models/{self.name}/versions/1"), expected)
        model = self.client.get_model_metadata(self.name, as_json=True)
        for tensor in model["inputs"] + model["outputs"]:
            tensor["shape"] = [int(size) for size in tensor["shape"]]
        self.assertEqual(model, expected)

    def test_others_are_refused(self):
        for call, code in (
                (lambda: self.client.get_model_metadata("quux"), "NOT_FOUND"),
                (lambda: self.client.get_model_metadata(self.name, "2"), "NOT_FOUND"),
                (lambda: self.client.get_model_metadata(""), "INVALID_ARGUMENT"),
                (lambda: self.client.is_model_ready(""), "INVALID_ARGUMENT"),
                (lambda: self.client.infer(self.name, []), "UNIMPLEMENTED"),
                (lambda: self.client.get_model_repository_index(), "UNIMPLEMENTED")):
            with self.assertRaises(InferenceServerException) as caught:
                call()
            self.assertIn(code, caught.exception.status())
            if code == "UNIMPLEMENTED":
                self.assertIn("weft.v1.TextGeneration", caught.exception.message())
            if code == "INVALID_ARGUMENT":
                self.assertIn("`name`", caught.exception.message())
        self.get("/v2/models/quux", 404)
        self.get(f"/v2/models/{self.name}/versions/2", 404)
        self.get("/v2/models/", 404)
        status, _, body = self.server.request("POST", f"/v2/models/{self.name}/infer", {})
        self.assertEqual(status, 501)
        self.assertIn("weft.v1.TextGeneration", json.loads(body)["error"])

    def test_bytes_that_are_no_message(self):
        with grpc.insecure_channel(self.server.grpc) as channel:
            for method, data in (("ServerLive", b"\xff"), ("ModelReady", b"\x0a\x02\xff\xfe"),
                                 ("ModelMetadata", b"\x0a\x05a"), ("ModelReady", b"\0" * 5000)):
                call = channel.unary_unary("/inference.GRPCInferenceService/" + method)
                with self.assertRaises(grpc.RpcError) as caught:
                    call(data, timeout=30)
                self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
                self.assertIn("`request`", caught.exception.details())

    def test_reflection_describes_what_tritons_client_speaks(self):
        from google.protobuf import descriptor_pb2, descriptor_pool
        from grpc_tools import protoc
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "set"
            self.assertEqual(protoc.main(["protoc", f"-I{ROOT}/proto", f"--descriptor_set_out={out}",
                                          "inference/open_inference.proto"]), 0)
            files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        ours = pool.FindServiceByName("inference.GRPCInferenceService")
        theirs = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
        self.assertEqual(set(ours.methods_by_name), OWN_METHODS)
        for name, method in ours.methods_by_name.items():
            other = theirs.methods_by_name[name]
            self.assertEqual(shape(method.input_type), shape(other.input_type), name)
            self.assertEqual(shape(method.output_type), shape(other.output_type), name)

    def test_health_needs_no_key_and_the_model_does(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = pathlib.Path(folder) / "keys"
            keys.write_text(json.dumps(key_file()))
            with WeftServer(f"--api-keys={keys}") as server:
                client = triton.InferenceServerClient(server.grpc)
                self.assertTrue(client.is_server_live() and client.is_server_ready())
                self.assertTrue(client.is_model_ready(self.name))
                self.assertEqual(client.get_server_metadata().name, "weft")
                with self.assertRaises(InferenceServerException) as caught:
                    client.get_model_metadata(self.name)
                self.assertIn("UNAUTHENTICATED", caught.exception.status())
                head = {"authorization": "Bearer " + key_of(TENANTS[0])}
                self.assertEqual(client.get_model_metadata(self.name, headers=head).name, self.name)
                client.close()
                for path, status in (("/v2", 200), ("/v2/health/ready", 200),
                                     (f"/v2/models/{self.name}/ready", 200),
                                     (f"/v2/models/{self.name}", 401)):
                    self.assertEqual(server.request("GET", path)[0], status, path)


if __name__ == "__main__":
    run_tests()
