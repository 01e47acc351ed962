// Fuzz target: a tokenizer.model of any bytes is refused or gives pieces, and merges that make
// pieces of pieces.

#include <cstddef>
#include <cstdint>

#include "common/check.h"
#include "deploy/convert/bpe_vocab.h"
#include "deploy/convert/sentence_piece.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto model = weft::convert::ParseSentencePiece({data, size});
  if (!model.ok()) return 0;
  const weft::convert::BpeVocab vocab = weft::convert::VocabOf(model->pieces);
  WEFT_CHECK_EQ(vocab.ids.size(), model->pieces.size());
  for (const auto& [left, right] : vocab.merges) {
    WEFT_CHECK(vocab.ids.contains(left) && vocab.ids.contains(right));
    WEFT_CHECK(vocab.ids.contains(left + right));
  }
  return 0;
}
