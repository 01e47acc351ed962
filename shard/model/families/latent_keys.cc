#include "shard/model/families/latent_keys.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "shard/model/families/rope_keys.h"

namespace weft::shard {
namespace {

// Even, so that pairs of elements are whole.
absl::StatusOr<uint32_t> EvenSize(const HfObject& root, const char* key) {
  WEFT_ASSIGN_OR_RETURN(const uint32_t size, root.GetUint(key));
  if (size > 0 && size % 2 == 0 && size <= kHeadDimMax) return size;
  return root.Bad(key, absl::StrCat("must be even and from 2 to ", kHeadDimMax, ", found ", size));
}

}  // namespace

absl::Status LatentFromHf(const HfObject& root, DecoderSpec* spec) {
  LatentSpec& latent = spec->latent;
  // transformers makes keys and values for each head, none of which heads share.
  if (spec->kv_heads != spec->heads) {
    return Unsupported(root.Where("num_key_value_heads"),
                       absl::StrCat(spec->kv_heads, " is not supported; expected ", spec->heads,
                                    ", the number of heads"));
  }
  spec->kv_heads = 1;
  WEFT_ASSIGN_OR_RETURN(const uint32_t rotated, EvenSize(root, "qk_rope_head_dim"));
  WEFT_ASSIGN_OR_RETURN(latent.rank, EvenSize(root, "kv_lora_rank"));
  WEFT_ASSIGN_OR_RETURN(latent.plain_dim, EvenSize(root, "qk_nope_head_dim"));
  WEFT_ASSIGN_OR_RETURN(latent.value_dim, EvenSize(root, "v_head_dim"));
  WEFT_ASSIGN_OR_RETURN(latent.query_rank, root.GetUintOr("q_lora_rank", 0));
  if (latent.query_rank > kHiddenMax) {
    return root.Bad("q_lora_rank",
                    absl::StrCat("must be at most ", kHiddenMax, ", found ", latent.query_rank));
  }
  spec->head_dim = latent.rank + rotated;
  if (spec->head_dim > kHeadDimMax) {
    return root.Bad("kv_lora_rank",
                    absl::StrCat("with qk_rope_head_dim ", rotated, " must be at most ",
                                 kHeadDimMax, ", found ", latent.rank));
  }
  return absl::OkStatus();
}

}  // namespace weft::shard
