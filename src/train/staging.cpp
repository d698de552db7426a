#include "train/staging.h"
#include <algorithm>
#include <cstring>
#include "core/bf16.h"

namespace annulus {

Staging::~Staging() {
  if (pinned_ != nullptr) backend_.pinned().release(pinned_);
  for (const Copy& copy : copies_) host_memory().release(copy.data);
}

Tensor Staging::slab(const Tensor& like, std::int64_t count) {
  if (pinned_ == nullptr) pinned_ = backend_.pinned().allocate(kSlab, "staging slab");
  return make_tensor(like.name, pinned_, like.dtype, {count}, Place::host);
}

void Staging::fill(const Tensor& to, const std::function<void(std::int64_t, const Tensor&)>& produce) {
  const std::int64_t most = kSlab / bytes_of(to.dtype);
  for (std::int64_t at = 0; at < to.size(); at += most) {
    const std::int64_t n = std::min(most, to.size() - at);
    if (to.place == Place::host) {
      produce(at, to.span(at, n));
      continue;
    }
    const Tensor part = slab(to, n);
    produce(at, part);
    backend_.queue().copy(Lane::in, part, to.span(at, n));
    backend_.queue().sync(backend_.queue().mark(Lane::in));
  }
}

Tensor Staging::copy_of(const Tensor& like, DType dtype) {
  const std::int64_t bytes = like.size() * bytes_of(dtype);
  if (next_ == copies_.size())
    copies_.push_back({host_memory().allocate(bytes, "snapshot of a shard"), bytes});
  need(copies_[next_].bytes == bytes, "a rewound staging repeats its calls");
  return make_tensor(like.name, copies_[next_++].data, dtype, {like.size()}, Place::host);
}

Tensor Staging::on_host(const Tensor& from) {
  if (from.place == Place::host && host_ == Host::itself) return from;
  const Tensor all = copy_of(from, from.dtype);
  if (from.place == Place::host) {
    std::memcpy(all.data, from.data, static_cast<std::size_t>(from.bytes()));
    return all;
  }
  const std::int64_t most = kSlab / bytes_of(from.dtype);
  for (std::int64_t at = 0; at < from.size(); at += most) {
    const std::int64_t n = std::min(most, from.size() - at);
    const Tensor part = slab(from, n);
    backend_.queue().copy(Lane::out, from.span(at, n), part);
    backend_.queue().sync(backend_.queue().mark(Lane::out));
    std::memcpy(all.span(at, n).data, part.data, static_cast<std::size_t>(part.bytes()));
  }
  return all;
}

Tensor Staging::on_host_f32(const Tensor& from) {
  const Tensor host = on_host(from);
  if (host.dtype == DType::f32) return host;
  const Tensor wide = copy_of(from, DType::f32);
  std::transform(host.as<bf16>(), host.as<bf16>() + host.size(), wide.as<float>(),
                 [](bf16 v) { return widen(v); });
  return wide;
}

}  // namespace annulus
