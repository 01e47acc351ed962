"""The demo model's tokenizer as a folder that transformers reads, for clients that tokenize
themselves. Needs gguf and tokenizers."""

import json
import pathlib
import sys
import tempfile

import gguf

from weft_server import DEMO_MODEL, ROOT

sys.path.append(str(ROOT / "tests/goldens"))
from demo_tokenizer import make_tokenizer  # noqa: E402


def tokenizer_folder(test_class):
    """Its path; it goes with the class."""
    folder = tempfile.TemporaryDirectory()
    test_class.addClassCleanup(folder.cleanup)
    path = pathlib.Path(folder.name)
    make_tokenizer(gguf.GGUFReader(DEMO_MODEL)).save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>",
        "bos_token": "<|im_start|>"}))
    (path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    return folder.name
