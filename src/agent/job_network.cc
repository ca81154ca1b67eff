#include "agent/job_network.h"

#include <fmt/format.h>
#include <poll.h>

#include "agent/instances.h"
#include "agent/program.h"

namespace atelier::agent {
namespace {

// What of the host's loopback a job needs: this server, and the package index that its operator has
// named.
std::set<std::uint16_t> host_ports(const AgentSpec& job) {
  std::set<std::uint16_t> ports = compute::loopback_ports(job.s3.url);
  ports.merge(compute::loopback_ports(job.credentials_uri));
  const compute::PipSetup pip = job_pip_setup(job);
  ports.merge(compute::loopback_ports(pip.configuration));
  for (const auto& [name, value] : pip.environment) ports.merge(compute::loopback_ports(value));
  return ports;
}

Result<compute::OutwardNetwork> begin_outward(const AgentSpec& job) {
  if (!compute::is_forwarded_loopback(job.s3.url)) {
    return Error{Code::kFailedPrecondition,
                 fmt::format("the server is at {}, and only 127.0.0.1 and [::1] can be passed on; "
                             "start it with such a --listen",
                             job.s3.url)};
  }
  return compute::OutwardNetwork::begin({network_identity(job.job_name), host_ports(job)});
}

}  // namespace

void JobNetwork::begin(const AgentSpec& job) {
  if (!leads(job) || job.network_isolation || job.host_network) return;
  Result<compute::OutwardNetwork> begun = begin_outward(job);
  if (begun) {
    outward_ = *std::move(begun);
  } else {
    warning_ = begun.error().message;
  }
}

Result<void> JobNetwork::meet(const std::filesystem::path& jobs_folder, AgentSpec& job,
                              const StopRequest& stop, JobLog& log) {
  if (!leads(job)) {
    if (!job.shared_network.empty()) {
      shared_ = TRY(compute::SharedNetwork::join(job.shared_network));
    }
    return {};
  }
  if (outward_) {
    Result<compute::SharedNetwork> ready = outward_->ready();
    if (ready) {
      shared_ = *std::move(ready);
    } else {
      warning_ = ready.error().message;
      outward_.reset();
    }
  } else if (job.network_isolation && job.instances.size() > 1) {
    shared_ = TRY(compute::SharedNetwork::create());
  }
  if (shared_ && job.instances.size() > 1) job.shared_network = shared_->name();
  if (shared_ || job.network_isolation) return {};
  if (!warning_.empty()) {
    warning_ = fmt::format(
        "the job shares this machine's network, and reaches what listens on its loopback, other "
        "jobs included: {} (docs/decisions/network.md)",
        warning_);
  }
  return meet_on_host(jobs_folder, job, stop, log);
}

Result<void> JobNetwork::meet_on_host(const std::filesystem::path& jobs_folder, AgentSpec& job,
                                      const StopRequest& stop, JobLog& log) {
  slot_ = TRY(take_network_slot(jobs_folder, job, stop, log));
  job.network_slot = slot_->number;
  return {};
}

const compute::SharedNetwork* JobNetwork::shared() const { return shared_ ? &*shared_ : nullptr; }

int JobNetwork::end_fd() const { return outward_ ? outward_->end_fd() : -1; }

bool JobNetwork::ended() const {
  pollfd end{end_fd(), POLLIN, 0};
  return end.fd >= 0 && poll(&end, 1, 0) > 0;
}

}  // namespace atelier::agent
