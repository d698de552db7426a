#include "parallel/activation_store.h"

namespace annulus {
namespace {

/// A tensor of the same shape and type from an arena.
template <class Take>
Tensor like(const Tensor& t, Take take) {
  const Tensor flat = take(t.name, t.dtype, t.size());
  Tensor same = t;
  same.data = flat.data;
  same.place = flat.place;
  same.row_stride = 0;
  return same;
}

}  // namespace

ActivationStore::ActivationStore(Backend& backend, Arena& arena, std::int64_t layers,
                                 std::int64_t host_layers)
    : queue_(backend.queue()),
      arena_(arena),
      host_(backend.queue(), backend.pinned()),
      host_layers_(host_layers),
      entries_(static_cast<std::size_t>(layers)) {}

ActivationStore::Entry& ActivationStore::entry(std::int64_t layer, Saved slot) {
  return entries_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(slot)];
}

void ActivationStore::save(std::int64_t layer, Saved slot, const Tensor& t) {
  Entry& e = entry(layer, slot);
  need(!e.saved, std::string("activation store: ") + t.name + " of a layer is saved twice");
  need(t.contiguous(), std::string("activation store: ") + t.name + " is not contiguous");
  e.device = t;
  e.saved = e.here = true;
  if (layer >= host_layers_) return;
  if (!e.host)
    e.host = like(t, [&](const char* name, DType type, std::int64_t n) {
      return host_.keep(Region::saved, name, type, {n});
    });
  need(e.host.bytes() == t.bytes(), std::string("activation store: ") + t.name + " changed its size");
  queue_.wait(Lane::out, queue_.mark(Lane::compute));
  queue_.wait(Lane::out, e.in);  // the row before may still be reading the buffer
  queue_.copy(Lane::out, e.device, e.host);
  e.out = queue_.mark(Lane::out);
}

void ActivationStore::settle(std::int64_t layer) {
  if (layer < 0 || layer >= host_layers_) return;
  bool waited = false;
  for (Entry& e : entries_[static_cast<std::size_t>(layer)]) {
    if (!e.saved || !e.here) continue;
    if (!waited) queue_.wait(Lane::out, queue_.mark(Lane::compute));
    waited = true;
    give(e, Lane::out);
  }
}

void ActivationStore::bring_back(Entry& e) {
  e.device = like(e.host, [&](const char* name, DType type, std::int64_t n) {
    return arena_.take(Region::saved, name, type, {n}, Lane::in);
  });
  queue_.wait(Lane::in, e.out);
  queue_.copy(Lane::in, e.host, e.device);
  e.in = queue_.mark(Lane::in);
  e.here = true;
}

void ActivationStore::fetch(std::int64_t layer) {
  if (layer >= host_layers_) return;
  for (Entry& e : entries_[static_cast<std::size_t>(layer)])
    if (e.saved && !e.here) bring_back(e);
}

Tensor ActivationStore::get(std::int64_t layer, Saved slot) {
  Entry& e = entry(layer, slot);
  need(e.saved, "activation store: a tensor is asked for that was not saved");
  if (!e.here) bring_back(e);
  queue_.wait(Lane::compute, e.in);
  return e.device;
}

void ActivationStore::park(std::int64_t layer, Saved slot) {
  Entry& e = entry(layer, slot);
  if (layer < host_layers_ && e.saved && e.here) give(e, Lane::compute);
}

void ActivationStore::release(std::int64_t layer, Saved slot) {
  Entry& e = entry(layer, slot);
  need(e.saved && e.here, "activation store: a tensor is released that is not here");
  give(e, Lane::compute);
  e.saved = false;
}

void ActivationStore::give(Entry& e, Lane last) {
  queue_.wait(last, e.in);
  queue_.wait(last, e.out);
  arena_.give(e.device, last);
  e.device = {};
  e.here = false;
}

void ActivationStore::abandon() {
  for (auto& layer : entries_)
    for (Entry& e : layer) {
      e.device = {};
      e.saved = e.here = false;
    }
}

}  // namespace annulus
