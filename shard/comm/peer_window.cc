#include "shard/comm/peer_window.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <nccl_device.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status.h"

namespace weft::shard {
namespace {

// Not a number that memory has by chance.
constexpr uint32_t kMark = 0x57656674;
constexpr int kOldest = NCCL_VERSION(2, 28, 7);
constexpr uint64_t kAlignment = NCCL_WIN_REQUIRED_ALIGNMENT;

absl::Status NcclStatus(ncclResult_t result, ncclComm_t comm, absl::string_view what) {
  if (result == ncclSuccess) return absl::OkStatus();
  const char* const detail = comm == nullptr ? nullptr : ncclGetLastError(comm);
  return absl::InternalError(absl::StrCat("NCCL: ", what, ": ", ncclGetErrorString(result),
                                          detail == nullptr || *detail == 0 ? "" : ": ",
                                          detail == nullptr ? "" : detail));
}

absl::Status DeviceStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("CUDA: ", what, ": ", cudaGetErrorString(error)));
}

absl::Status Unavailable(absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat("no symmetric windows: ", why));
}

// What holds for the process, before NCCL is asked for anything.
absl::Status CheckProcess() {
  int version = 0;
  WEFT_RETURN_IF_ERROR(NcclStatus(ncclGetVersion(&version), nullptr, "its version"));
  // The device API's structures, a window's layout in device memory among them, are those of one
  // minor version.
  if (version < kOldest || version / 100 != NCCL_VERSION_CODE / 100) {
    return Unavailable(
        absl::StrCat("NCCL is version ", version, ", compiled for ", NCCL_VERSION_CODE));
  }
  // The first window would make a multicast object otherwise.
  const char* const multicast = std::getenv("NCCL_NVLS_ENABLE");
  if (multicast == nullptr || absl::string_view(multicast) != "0") {
    return Unavailable("NCCL_NVLS_ENABLE is not 0");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerWindow>> PeerWindow::Create(ncclComm* comm, uint64_t bytes) {
  WEFT_RETURN_IF_ERROR(CheckProcess());
  std::unique_ptr<PeerWindow> window(new PeerWindow(comm));
  WEFT_RETURN_IF_ERROR(
      NcclStatus(ncclCommUserRank(comm, &window->rank_), comm, "the communicator's rank"));
  WEFT_RETURN_IF_ERROR(
      NcclStatus(ncclCommCount(comm, &window->ranks_), comm, "the communicator's size"));
  WEFT_RETURN_IF_ERROR(window->CheckSymmetric());
  WEFT_RETURN_IF_ERROR(window->Allocate(bytes));
  WEFT_RETURN_IF_ERROR(window->Register());
  WEFT_RETURN_IF_ERROR(window->FindPeers());
  return window;
}

// Asked first: without symmetric memory a registration succeeds too, and what it gives is not a
// window.
absl::Status PeerWindow::CheckSymmetric() {
  ncclDevCommRequirements requirements{};
  ncclDevComm device_comm{};
  const ncclResult_t result = ncclDevCommCreate(comm_, &requirements, &device_comm);
  if (result == ncclInvalidUsage) return Unavailable("NCCL says so of this communicator");
  WEFT_RETURN_IF_ERROR(NcclStatus(result, comm_, "device communicator"));
  const int reachable = device_comm.lsaSize;
  WEFT_RETURN_IF_ERROR(
      NcclStatus(ncclDevCommDestroy(comm_, &device_comm), comm_, "end of a device communicator"));
  if (reachable != ranks_) {
    return Unavailable(
        absl::StrCat("loads and stores reach ", reachable, " of ", ranks_, " ranks"));
  }
  return absl::OkStatus();
}

absl::Status PeerWindow::Allocate(uint64_t bytes) {
  bytes_ = bytes;
  mark_at_ = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  allocated_ = mark_at_ + kAlignment;
  void* data = nullptr;
  WEFT_RETURN_IF_ERROR(NcclStatus(ncclMemAlloc(&data, allocated_), comm_,
                                  absl::StrCat(allocated_, " bytes for all ranks")));
  data_ = static_cast<uint8_t*>(data);
  const uint32_t mark = kMark + static_cast<uint32_t>(rank_);
  WEFT_RETURN_IF_ERROR(DeviceStatus(cudaMemset(data_, 0, allocated_), "clearing a window"));
  WEFT_RETURN_IF_ERROR(
      DeviceStatus(cudaMemcpy(data_ + mark_at_, &mark, sizeof(mark), cudaMemcpyHostToDevice),
                   "marking a window"));
  // cudaMemset does not wait for the device. The registration after it is the ranks' barrier.
  return DeviceStatus(cudaDeviceSynchronize(), "clearing a window");
}

absl::Status PeerWindow::Register() {
  WEFT_RETURN_IF_ERROR(NcclStatus(
      ncclCommWindowRegister(comm_, data_, allocated_, &window_, NCCL_WIN_COLL_SYMMETRIC), comm_,
      "registering a window"));
  if (window_ == nullptr) return Unavailable("NCCL registered none");
  return absl::OkStatus();
}

// As ncclGetLsaPointer does in a kernel: the ranks' copies lie in one range of addresses, a whole
// number of 4 GB apart.
absl::Status PeerWindow::FindPeers() {
  ncclWindow_vidmem window;
  WEFT_RETURN_IF_ERROR(
      DeviceStatus(cudaMemcpy(&window, window_, sizeof(window), cudaMemcpyDeviceToHost),
                   "reading a window's addresses"));
  if (window.lsaRank != rank_ || window.lsaFlatBase == nullptr || window.stride4G == 0) {
    return Unavailable("a window of an unknown layout");
  }
  for (int r = 0; r < ranks_; ++r) {
    char* const base = window.lsaFlatBase + (uint64_t{window.stride4G} << 32) * r;
    uint8_t* const data = r == rank_ ? data_ : reinterpret_cast<uint8_t*>(base);
    uint32_t mark = 0;
    WEFT_RETURN_IF_ERROR(
        DeviceStatus(cudaMemcpy(&mark, data + mark_at_, sizeof(mark), cudaMemcpyDefault),
                     absl::StrCat("reading the window of rank ", r)));
    if (mark != kMark + static_cast<uint32_t>(r)) {
      return Unavailable(absl::StrCat("the window of rank ", r, " is not where it should be"));
    }
    peers_.push_back(data);
  }
  return absl::OkStatus();
}

// Unmapped on all ranks' side by its own end there; the memory itself lives until the last of them
// has let go.
PeerWindow::~PeerWindow() {
  if (window_ != nullptr) ncclCommWindowDeregister(comm_, window_);
  if (data_ != nullptr) ncclMemFree(data_);
}

}  // namespace weft::shard
