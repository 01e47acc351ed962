#include "shard/comm/peer_memory.h"

#include <cstring>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/status.h"
#include "shard/comm/host_id.h"
#include "shard/device/cuda/runtime/status.h"

namespace weft::shard {
namespace {

// What a rank tells the others of its memory.
struct Offer {
  cudaIpcMemHandle_t handle;
  uint64_t host;
  uint64_t process;
  int32_t device;
  uint8_t* data;
};
// Gathered as floats.
constexpr uint64_t kOfferBytes = (sizeof(Offer) + 15) / 16 * 16;

// Tells processes apart, also those of containers with process ids of their own.
uint64_t ThisProcess() {
  static const uint64_t process = [] {
    std::random_device random;
    return uint64_t{random()} << 32 | random();
  }();
  return process;
}

int CurrentDevice() {
  int device = 0;
  WEFT_CHECK_EQ(cudaGetDevice(&device), cudaSuccess);
  return device;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerMemory>> PeerMemory::Create(uint64_t bytes) {
  std::unique_ptr<PeerMemory> memory(new PeerMemory());
  memory->bytes_ = bytes;
  void* data = nullptr;
  WEFT_RETURN_IF_ERROR(
      CudaStatus(cudaMalloc(&data, bytes), absl::StrCat(bytes, " bytes that all ranks map")));
  memory->data_ = static_cast<uint8_t*>(data);
  WEFT_RETURN_IF_ERROR(
      CudaStatus(cudaMalloc(&data, (kWorldMax + 1) * kOfferBytes), "memory for an exchange"));
  memory->exchange_ = static_cast<uint8_t*>(data);
  return memory;
}

PeerMemory::~PeerMemory() {
  Disconnect();
  cudaFree(exchange_);
  cudaFree(data_);
}

absl::Status PeerMemory::Gather(NcclCommunicator& communicator, const void* mine, uint64_t bytes,
                                void* all, cudaStream_t stream, absl::Time deadline) {
  uint8_t* const gathered = exchange_ + kOfferBytes;
  WEFT_RETURN_IF_ERROR(CudaStatus(
      cudaMemcpyAsync(exchange_, mine, bytes, cudaMemcpyHostToDevice, stream), "copy of an offer"));
  WEFT_RETURN_IF_ERROR(communicator.AllGather(reinterpret_cast<const float*>(exchange_),
                                              bytes / sizeof(float),
                                              reinterpret_cast<float*>(gathered), stream));
  WEFT_ASSIGN_OR_RETURN(
      const cudaError_t state,
      communicator.AwaitDevice([stream] { return cudaStreamQuery(stream); }, deadline,
                               "not all ranks came to exchange their memory"));
  WEFT_RETURN_IF_ERROR(CudaStatus(state, "exchange of offers"));
  return CudaStatus(cudaMemcpy(all, gathered, bytes * communicator.world(), cudaMemcpyDeviceToHost),
                    "copy of offers");
}

absl::StatusOr<PeerMemory::Peer> PeerMemory::Open(Rank rank, const void* data) const {
  Offer offer;
  std::memcpy(&offer, data, sizeof(offer));
  if (offer.data == data_ && offer.process == ThisProcess()) return Peer{data_, false};
  if (offer.process == ThisProcess()) {
    // Ranks in one process, as tests have them: a handle of the own process cannot be opened.
    const cudaError_t error = cudaDeviceEnablePeerAccess(offer.device, 0);
    if (error != cudaSuccess && error != cudaErrorPeerAccessAlreadyEnabled) {
      return CudaStatus(error, absl::StrCat("access to GPU ", offer.device));
    }
    (void)cudaGetLastError();
    return Peer{offer.data, false};
  }
  WEFT_RETURN_IF_ERROR(CheckSameHost(rank, HostId(""), offer.host));
  void* mapped = nullptr;
  WEFT_RETURN_IF_ERROR(
      CudaStatus(cudaIpcOpenMemHandle(&mapped, offer.handle, cudaIpcMemLazyEnablePeerAccess),
                 "mapping another rank's memory"));
  return Peer{static_cast<uint8_t*>(mapped), true};
}

absl::Status PeerMemory::Connect(NcclCommunicator& communicator, cudaStream_t stream,
                                 absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  const uint32_t world = communicator.world();
  WEFT_CHECK_LE(world, kWorldMax);
  Disconnect();
  // All ranks have met: none runs kernels of an older epoch.
  WEFT_RETURN_IF_ERROR(
      CudaStatus(cudaMemsetAsync(data_, 0, bytes_, stream), "clearing shared memory"));
  Offer offer = {};
  absl::Status opened = CudaStatus(cudaIpcGetMemHandle(&offer.handle, data_), "a memory handle");
  offer.host = HostId("");
  offer.process = ThisProcess();
  offer.device = CurrentDevice();
  offer.data = data_;
  std::vector<uint8_t> mine(kOfferBytes);
  std::memcpy(mine.data(), &offer, sizeof(offer));
  std::vector<uint8_t> offers(world * kOfferBytes);
  WEFT_RETURN_IF_ERROR(
      Gather(communicator, mine.data(), kOfferBytes, offers.data(), stream, deadline));
  for (Rank rank = 0; rank < world && opened.ok(); ++rank) {
    absl::StatusOr<Peer> peer = Open(rank, offers.data() + rank * kOfferBytes);
    opened = peer.status();
    if (peer.ok()) peers_.push_back(*peer);
  }
  // All or none: ranks must launch the same.
  const float ok[4] = {opened.ok() ? 1.0f : 0.0f, 0, 0, 0};
  std::vector<float> all(4 * world);
  WEFT_RETURN_IF_ERROR(Gather(communicator, ok, sizeof(ok), all.data(), stream, deadline));
  for (Rank rank = 0; rank < world; ++rank) {
    if (all[4 * rank] == 1.0f) continue;
    Disconnect();
    if (!opened.ok()) return absl::FailedPreconditionError(opened.message());
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", rank, " cannot reach the memory of another rank"));
  }
  return absl::OkStatus();
}

void PeerMemory::Disconnect() {
  for (const Peer& peer : peers_) {
    if (peer.mapped && cudaIpcCloseMemHandle(peer.data) != cudaSuccess) (void)cudaGetLastError();
  }
  peers_.clear();
}

}  // namespace weft::shard
