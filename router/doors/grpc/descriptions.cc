#include "router/doors/grpc/descriptions.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "google/protobuf/descriptor.pb.h"
#include "grpcpp/support/status.h"

namespace weft::router {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using grpc::reflection::v1::ServerReflectionRequest;
using grpc::reflection::v1::ServerReflectionResponse;

void FillError(grpc::StatusCode code, std::string message, ServerReflectionResponse* response) {
  response->mutable_error_response()->set_error_code(code);
  response->mutable_error_response()->set_error_message(std::move(message));
}

}  // namespace

Descriptions::Descriptions(const std::vector<const FileDescriptor*>& files) {
  for (const FileDescriptor* file : files) {
    Add(file);
    for (int i = 0; i < file->service_count(); ++i) {
      services_.push_back(file->service(i)->full_name());
    }
  }
}

void Descriptions::Add(const FileDescriptor* file) {
  if (encoded_.contains(file->name())) return;
  for (int i = 0; i < file->dependency_count(); ++i) Add(file->dependency(i));
  google::protobuf::FileDescriptorProto description;
  file->CopyTo(&description);
  WEFT_CHECK_MSG(pool_.BuildFile(description) != nullptr, file->name());
  encoded_.emplace(file->name(), description.SerializeAsString());
}

ServerReflectionResponse Descriptions::Answer(const ServerReflectionRequest& request) const {
  Response response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kFileByFilename:
      FillFile(pool_.FindFileByName(request.file_by_filename()), "file", &response);
      break;
    case ServerReflectionRequest::kFileContainingSymbol:
      FillFile(pool_.FindFileContainingSymbol(request.file_containing_symbol()), "symbol",
               &response);
      break;
    case ServerReflectionRequest::kFileContainingExtension:
      FillFile(FileOfExtension(request.file_containing_extension()), "extension", &response);
      break;
    case ServerReflectionRequest::kAllExtensionNumbersOfType:
      FillExtensions(request.all_extension_numbers_of_type(), &response);
      break;
    case ServerReflectionRequest::kListServices:
      for (const std::string& name : services_) {
        response.mutable_list_services_response()->add_service()->set_name(name);
      }
      break;
    case ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      FillError(grpc::StatusCode::INVALID_ARGUMENT, "the request asks for nothing", &response);
      break;
  }
  return response;
}

void Descriptions::FillFile(const FileDescriptor* file, absl::string_view what,
                            Response* response) const {
  if (file == nullptr) {
    return FillError(grpc::StatusCode::NOT_FOUND, absl::StrCat("there is no such ", what),
                     response);
  }
  std::vector<const FileDescriptor*> files = {file};
  absl::flat_hash_set<const FileDescriptor*> seen = {file};
  for (size_t i = 0; i < files.size(); ++i) {
    const FileDescriptor* const one = files[i];
    *response->mutable_file_descriptor_response()->add_file_descriptor_proto() =
        encoded_.at(one->name());
    for (int at = 0; at < one->dependency_count(); ++at) {
      if (seen.insert(one->dependency(at)).second) files.push_back(one->dependency(at));
    }
  }
}

const FileDescriptor* Descriptions::FileOfExtension(
    const grpc::reflection::v1::ExtensionRequest& request) const {
  const Descriptor* const type = pool_.FindMessageTypeByName(request.containing_type());
  if (type == nullptr) return nullptr;
  const FieldDescriptor* const field =
      pool_.FindExtensionByNumber(type, request.extension_number());
  return field == nullptr ? nullptr : field->file();
}

void Descriptions::FillExtensions(const std::string& type, Response* response) const {
  const Descriptor* const found = pool_.FindMessageTypeByName(type);
  if (found == nullptr) {
    return FillError(grpc::StatusCode::NOT_FOUND, "there is no such type", response);
  }
  std::vector<const FieldDescriptor*> extensions;
  pool_.FindAllExtensions(found, &extensions);
  auto* const answer = response->mutable_all_extension_numbers_response();
  answer->set_base_type_name(type);
  for (const FieldDescriptor* one : extensions) answer->add_extension_number(one->number());
}

}  // namespace weft::router
