// What reflection says: the services of some proto files, and these files with all that they
// import. Owned by the reflection service. Immutable; any thread. It asks the process's own pool of
// descriptors nothing that a client names, since that pool remembers every name it does not know.

#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "grpc/reflection/v1/reflection.pb.h"

namespace weft::router {

class Descriptions {
 public:
  // The services in `files` are served.
  explicit Descriptions(const std::vector<const google::protobuf::FileDescriptor*>& files);

  grpc::reflection::v1::ServerReflectionResponse Answer(
      const grpc::reflection::v1::ServerReflectionRequest& request) const;

 private:
  using Response = grpc::reflection::v1::ServerReflectionResponse;

  void Add(const google::protobuf::FileDescriptor* file);
  // `file` and what it imports; an error that says what is not known when it is null.
  void FillFile(const google::protobuf::FileDescriptor* file, absl::string_view what,
                Response* response) const;
  const google::protobuf::FileDescriptor* FileOfExtension(
      const grpc::reflection::v1::ExtensionRequest& request) const;
  void FillExtensions(const std::string& type, Response* response) const;

  google::protobuf::DescriptorPool pool_;
  // FileDescriptorProto each, by name.
  absl::flat_hash_map<std::string, std::string> encoded_;
  std::vector<std::string> services_;
};

}  // namespace weft::router
