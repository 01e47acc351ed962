"""Broken model files: `weft serve` exits non-zero before it serves, and says which file, which
tensor or key, what was expected, what was found, and what would work."""

import collections
import io
import json
import math
import os
import pathlib
import pickle
import shutil
import struct
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock
import zipfile

from weft_server import BIN, DEMO_MODEL, ROOT, WeftServer

GOLDENS = ROOT / "tests/goldens"
U32, U64, STRING, ARRAY = 4, 10, 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


class GgufHeader:
    """The bytes in front of a GGUF file's data, and where its values and tensor entries stand."""

    def __init__(self, path):
        self.size = os.path.getsize(path)
        with open(path, "rb") as file:
            self.bytes = bytearray(file.read(8 << 20))
        self.at = 8
        tensor_count, key_count = self.take("<QQ")
        self.keys, self.tensors = {}, {}
        for _ in range(key_count):
            key = self.string()
            self.keys[key] = self.at  # of the value's type
            self.skip(*self.take("<I"))
        for _ in range(tensor_count):
            name, at = self.string(), self.at
            dims = self.take("<I")[0]
            self.at += 8 * dims + 12
            # Of the first dimension, the type and the offset.
            self.tensors[name] = (at + 4, at + 4 + 8 * dims, at + 8 + 8 * dims)
        del self.bytes[self.at:]

    def take(self, form):
        values = struct.unpack_from(form, self.bytes, self.at)
        self.at += struct.calcsize(form)
        return values

    def string(self):
        length, = self.take("<Q")
        self.at += length
        return self.bytes[self.at - length:self.at].decode()

    def skip(self, kind):
        if kind == ARRAY:
            element, count = self.take("<IQ")
            for _ in range(count if element == STRING else 0):
                self.string()
            self.at += count * SIZES.get(element, 0)
        elif kind == STRING:
            self.string()
        else:
            self.at += SIZES[kind]

    def set(self, at, form, value):
        struct.pack_into(form, self.bytes, at, value)
        return self

    def get(self, at, form):
        return struct.unpack_from(form, self.bytes, at)[0]

    def set_text(self, key, text):
        """Puts a text of the same length."""
        at = self.keys[key] + 12
        assert self.get(at - 8, "<Q") == len(text), key
        self.bytes[at:at + len(text)] = text.encode()
        return self

    def write(self, path, size=None):
        """With a hole for data: only a file whose header is right is read further."""
        path.write_bytes(self.bytes)
        os.truncate(path, size or self.size)


def split_safetensors(path):
    """(header object, data)."""
    raw = path.read_bytes()
    length, = struct.unpack_from("<Q", raw)
    return json.loads(raw[8:8 + length]), raw[8 + length:]


def join_safetensors(path, header, data):
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def torch_save(path, header, data):
    """What torch.save writes of the tensors of a safetensors file, by Python's own pickle and
    zipfile, and without torch."""
    kinds = {"F32": ("FloatStorage", 4), "F16": ("HalfStorage", 2), "BF16": ("BFloat16Storage", 2),
             "I64": ("LongStorage", 8), "BOOL": ("BoolStorage", 1)}
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for kind, _ in kinds.values():
        setattr(torch, kind, type(kind, (), {"__module__": "torch"}))

    def rebuild(*_):
        raise AssertionError("called")
    rebuild.__module__, rebuild.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = rebuild

    class Storage(str):
        """Its name is its place in the archive."""

    class Tensor:
        def __init__(self, name, entry):
            begin, end = entry["data_offsets"]
            self.name, self.bytes, self.shape = name, data[begin:end], tuple(entry["shape"])
            self.kind, self.width = kinds[entry["dtype"]]

        def __reduce__(self):
            strides = [math.prod(self.shape[i + 1:]) for i in range(len(self.shape))]
            return rebuild, (Storage(self.name), 0, self.shape, tuple(strides), False,
                             collections.OrderedDict())

    tensors = {name: Tensor(name, entry) for name, entry in header.items()
               if name != "__metadata__"}

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            if not isinstance(value, Storage):
                return None
            tensor = tensors[value]
            return ("storage", getattr(torch, tensor.kind), str(value), "cpu",
                    len(tensor.bytes) // tensor.width)

    stream = io.BytesIO()
    with unittest.mock.patch.dict(sys.modules, {"torch": torch, "torch._utils": utils}):
        Pickler(stream, protocol=2).dump(collections.OrderedDict(tensors))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pytorch_model/data.pkl", stream.getvalue())
        for name, tensor in tensors.items():
            archive.writestr(f"pytorch_model/data/{name}", tensor.bytes)


class BadModelTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weft-bad-model-"))
        self.gguf = self.folder / "broken.gguf"
        self.model = self.folder / "model"

    def tearDown(self):
        shutil.rmtree(self.folder)

    def copy_golden(self, name):
        shutil.copytree(GOLDENS / name, self.model)
        return self.model / "model.safetensors"

    def refused(self, model, *words, flags=()):
        """`weft serve` ends by itself, non-zero, never ready, and its last words hold `words`."""
        result = subprocess.run(
            [str(BIN / "weft"), "serve", f"--model={model}", "--grpc-port=0", "--http-port=0",
             *flags], capture_output=True, text=True, timeout=60)
        said = result.stdout + result.stderr
        self.assertGreater(result.returncode, 0, said)
        self.assertNotIn("ready ", result.stdout)
        line = [line for line in said.splitlines() if all(word in line for word in words)]
        self.assertTrue(line, (words, said))

    # -- GGUF -------------------------------------------------------------------------------------
    def test_a_gguf_file_that_is_whole_but_for_its_data_would_be_taken(self):
        """What the edits below start from is accepted, so that they are what is refused."""
        header = GgufHeader(DEMO_MODEL)
        self.assertEqual(len(header.tensors), 272)
        header.write(self.gguf)
        with WeftServer(model=self.gguf) as server:
            self.assertEqual(server.request("GET", "/readyz")[0], 200)

    def test_truncated_gguf_files(self):
        again = "copy or download it again"
        GgufHeader(DEMO_MODEL).write(self.gguf, size=50_000_000)
        self.refused(self.gguf, "broken.gguf", "tensor ", "needs bytes", "which has", again)
        raw = bytes(GgufHeader(DEMO_MODEL).bytes)
        for size, inside in ((0, "is empty"), (3, "GGUF"), (20, "header"), (3000, "tokenizer.ggml"),
                             (len(raw) - 10, "tensor ")):
            self.gguf.write_bytes(raw[:size])
            self.refused(self.gguf, "broken.gguf", inside, again)
        self.gguf.write_bytes(b"x" * 1000)
        self.refused(self.gguf, "broken.gguf", "GGUF")

    def test_gguf_tensors_out_of_place(self):
        header = GgufHeader(DEMO_MODEL)
        name = "blk.3.ffn_up.weight"
        offset_at = header.tensors[name][2]
        offset = header.get(offset_at, "<Q")
        header.set(offset_at, "<Q", offset - 64).write(self.gguf)
        self.refused(self.gguf, "broken.gguf", f'tensor "{name}"', f"found {offset - 64}",
                     f"expected an offset of {offset} or more", "copy or download it again")
        header.set(offset_at, "<Q", 1 << 40).write(self.gguf)
        self.refused(self.gguf, "broken.gguf", f'tensor "{name}"', str(1 << 40),
                     "of the data, which has", "copy or download it again")
        header.set(offset_at, "<Q", offset + 1).write(self.gguf)
        self.refused(self.gguf, "broken.gguf", f'tensor "{name}"', str(offset + 1),
                     "multiple of 32", "copy or download it again")

    def test_gguf_shapes_and_types(self):
        header = GgufHeader(DEMO_MODEL)
        dims_at, type_at, _ = header.tensors["blk.3.ffn_down.weight"]
        rows = header.get(dims_at + 8, "<Q")
        header.set(dims_at + 8, "<Q", rows - 1).write(self.gguf)
        self.refused(self.gguf, "broken.gguf", "blk.3.ffn_down.weight", f"expected shape [{rows},",
                     f"found [{rows - 1},", "convert")
        header.set(dims_at + 8, "<Q", rows)
        for number, type_name in ((19, "IQ1_S"), (4711, "4711")):
            GgufHeader(DEMO_MODEL).set(type_at, "<I", number).write(self.gguf)
            self.refused(self.gguf, "broken.gguf", "blk.3.ffn_down.weight", type_name,
                         "supported are", "Q4_0", "Q8_0")

    def test_gguf_families_and_tokenizers(self):
        GgufHeader(DEMO_MODEL).set_text("general.architecture", "quuxx").write(self.gguf)
        self.refused(self.gguf, "broken.gguf", "general.architecture", "quuxx", "known are",
                     "llama")
        GgufHeader(DEMO_MODEL).set_text("tokenizer.ggml.pre", "quuxxx").write(self.gguf)
        self.refused(self.gguf, "broken.gguf", "tokenizer.ggml.pre", "quuxxx", "known are",
                     "smollm")
        GgufHeader(DEMO_MODEL).set_text("tokenizer.ggml.model", "bert").write(self.gguf)
        self.refused(self.gguf, "broken.gguf", "tokenizer.ggml.model", "bert", "expected", "gpt2",
                     "tokenizer.json")
        header = GgufHeader(DEMO_MODEL)
        header.set(header.keys["llama.attention.head_count_kv"] + 4, "<I", 4).write(self.gguf)
        self.refused(self.gguf, "broken.gguf", "head_count_kv", "9", "found 4")

    # -- Hugging Face directories -----------------------------------------------------------------
    def test_truncated_safetensors_files(self):
        path = self.copy_golden("llama_nine_heads_f16")
        raw = path.read_bytes()
        for size, words in ((0, ["is empty"]), (7, ["too short"]),
                            (100, ["header", "bytes of a file of 100"]),
                            (len(raw) // 2, ["tensor ", "which has", "truncated"]),
                            (len(raw) - 1, ["tensor ", "which has", "truncated"])):
            path.write_bytes(raw[:size])
            self.refused(self.model, "model.safetensors", "copy or download it again", *words)

    def test_safetensors_entries_that_are_wrong(self):
        path = self.copy_golden("llama_nine_heads_f16")
        header, data = split_safetensors(path)
        name = "model.layers.1.mlp.up_proj.weight"
        entry = header[name]
        begin, end = entry["data_offsets"]
        rows, columns = entry["shape"]
        for change, words in (
                ({"data_offsets": [begin - 4, end - 4]}, ["inside the one before it", str(begin)]),
                ({"data_offsets": [begin + 2**40, end + 2**40]},
                 ["outside the data", str(len(data)), "copy or download it again"]),
                ({"data_offsets": [begin, end - 2]}, ["needs", "bytes", str(end - 2)]),
                ({"shape": [rows + 1, columns]}, [f"[{rows + 1}, {columns}]", "needs"]),
                ({"shape": [columns, rows]}, [f"expected shape [{rows}, {columns}]",
                                              f"found [{columns}, {rows}]", "configuration"]),
                ({"dtype": "I8", "shape": [rows, 2 * columns]}, ["I8", "known are F32, F16, BF16"]),
                ({"dtype": "QUUX"}, ["QUUX", "known are F32, F16, BF16"])):
            join_safetensors(path, {**header, name: {**entry, **change}}, data)
            self.refused(self.model, "model.safetensors", f"tensor {name}", *words)
        without = {key: value for key, value in header.items() if key != "lm_head.weight"}
        join_safetensors(path, {**without, "lm_tail.weight": header["lm_head.weight"]}, data)
        self.refused(self.model, "model", "tensor lm_head.weight", "expected",
                     "found no such tensor", "tie_word_embeddings")

    def test_an_index_whose_parts_are_missing_or_hold_something_else(self):
        self.copy_golden("llama_untied_linear_parts")
        index = json.loads((self.model / "model.safetensors.index.json").read_text())
        part = sorted(set(index["weight_map"].values()))[-1]
        tensor = next(name for name, file in index["weight_map"].items() if file == part)
        (self.model / part).rename(self.folder / part)
        self.refused(self.model, part, "model.safetensors.index.json", tensor,
                     "copy or download")
        (self.folder / part).rename(self.model / part)
        index["weight_map"][tensor] = next(
            file for file in index["weight_map"].values() if file != part)
        (self.model / "model.safetensors.index.json").write_text(json.dumps(index))
        self.refused(self.model, "model.safetensors.index.json", tensor, "is not in",
                     index["weight_map"][tensor])

    def test_configs(self):
        self.copy_golden("llama_nine_heads_f16")
        path = self.model / "config.json"
        config = json.loads(path.read_text())
        for change, words in (
                ({"model_type": "quux"}, ["model_type", "quux", "known are", "llama"]),
                ({"num_attention_heads": 0}, ["num_attention_heads", "1 to", "found 0"]),
                ({"rope_parameters": {"rope_theta": 0}},
                 ["rope_parameters.rope_theta", "at least 1", "found 0"]),
                ({"rms_norm_eps": -1}, ["rms_norm_eps", "above 0", "found -1"]),
                ({"hidden_size": "x"}, ["hidden_size"]),
                ({"hidden_act": "quux"}, ["hidden_act", "quux", "silu"])):
            path.write_text(json.dumps({**config, **change}))
            self.refused(self.model, "config.json", *words)
        path.write_text("{")
        self.refused(self.model, "config.json")
        path.write_text(json.dumps(config))
        generation = self.model / "generation_config.json"
        for end in (-5, config["vocab_size"]):
            generation.write_text(json.dumps({"eos_token_id": [2, end]}))
            self.refused(self.model, "generation_config.json", "eos_token_id",
                         f"from 0 to {config['vocab_size'] - 1}", f"found {end}")
        generation.write_text('{"eos_token_id": 2}')
        (self.model / "tokenizer.json").write_text("{")
        self.refused(self.model, "tokenizer.json")
        (self.model / "tokenizer.json").unlink()
        self.refused(self.model, "tokenizer.json", "AutoTokenizer")

    def test_paths_that_hold_no_model(self):
        self.refused("/no/such/model.gguf", "/no/such/model.gguf")
        self.refused(self.folder, str(self.folder), ".json")  # config or tokenizer, by who is first
        path = self.folder / "model.bin"
        path.write_bytes(b"x")
        self.refused(path, "model.bin", ".gguf")

    def test_older_files_are_told_the_command_that_converts_them(self):
        """What the refusal says is run as it is; then the model answers as it did before."""
        path = self.copy_golden("opt")
        header, data = split_safetensors(path)
        path.unlink()
        torch_save(self.model / "pytorch_model.bin", header, data)
        tokenizer = self.model / "tokenizer.json"
        vocab = json.loads(tokenizer.read_text())["model"]["vocab"]
        tokenizer.unlink()
        (self.model / "vocab.json").write_text(json.dumps(vocab))
        (self.model / "merges.txt").write_text("#version: 0.2\n")
        (self.model / "tokenizer_config.json").write_text(json.dumps(
            {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "<unk>"}))
        command = f"weft convert --from {self.model}"
        self.refused(self.model, "model.safetensors", f"; {command} makes it of the .bin files")
        subprocess.run([str(BIN / "weft"), *command.split()[1:]], check=True, timeout=60,
                       capture_output=True)
        found, moved = split_safetensors(path)
        for name in header.keys() - {"__metadata__"}:
            (begin, end), (from_, to) = header[name]["data_offsets"], found[name]["data_offsets"]
            self.assertEqual(moved[from_:to], data[begin:end], name)
        answers = []
        for model in (GOLDENS / "opt", self.model):
            with WeftServer("--dtype=float32", model=model) as server:
                answers.append(server.request(
                    "POST", "/generate", {"inputs": "Hello world",
                                          "parameters": {"max_new_tokens": 16, "details": True}}))
        self.assertEqual([answer[0] for answer in answers], [200, 200], answers)
        tokens = [json.loads(answer[2])["details"]["tokens"] for answer in answers]
        self.assertEqual(len(tokens[0]), 16)
        self.assertEqual(*[[token["id"] for token in list_] for list_ in tokens])
        # Only the tokenizer is missing: the same command.
        tokenizer.unlink()
        self.refused(self.model, f"tokenizer.json does not exist; {command} makes it of vocab.json")

    # -- Shards -----------------------------------------------------------------------------------
    def test_more_shards_than_the_model_can_be_cut_into(self):
        self.refused(DEMO_MODEL, pathlib.Path(DEMO_MODEL).name, "10 shards", "9 query heads",
                     "1 to 9", flags=["--shards=10"])
        # Once, and by the launcher: no shard was there to say it.
        result = subprocess.run(
            [str(BIN / "weft"), "serve", f"--model={DEMO_MODEL}", "--grpc-port=0", "--http-port=0",
             "--device=cpu", "--shards=12"], capture_output=True, text=True, timeout=60)
        self.assertEqual(result.returncode, 1)
        lines = result.stderr.splitlines()
        self.assertEqual(len(lines), 1, lines)
        self.assertIn("12 shards are too many", lines[0])
        self.assertIn("--shards", lines[0])


if __name__ == "__main__":
    unittest.main()
