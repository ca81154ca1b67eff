#include "api/shapes.h"

#include <algorithm>

namespace atelier::api {

const ServiceModel* find_service(std::string_view signing_name) {
  for (const ServiceModel& service : service_models()) {
    if (service.signing_name == signing_name) return &service;
  }
  return nullptr;
}

const ServiceModel* find_service_by_target(std::string_view target_prefix) {
  for (const ServiceModel& service : service_models()) {
    if (!target_prefix.empty() && service.target_prefix == target_prefix) return &service;
  }
  return nullptr;
}

const Operation* find_operation(const ServiceModel& service, std::string_view name) {
  const auto found = std::ranges::lower_bound(service.operations, name, {}, &Operation::name);
  return found != service.operations.end() && found->name == name ? &*found : nullptr;
}

const Member* member_of(const Shape& structure, std::string_view name) {
  const auto found = std::ranges::find(structure.members, name, &Member::name);
  return found != structure.members.end() ? &*found : nullptr;
}

}  // namespace atelier::api
