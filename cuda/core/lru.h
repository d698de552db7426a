// A bounded map that forgets what was used longest ago.
#pragma once
#include <cstddef>
#include <list>
#include <map>
#include <utility>
#include "core/check.h"

namespace annulus::cuda {

template <class Key, class Value>
class Lru {
 public:
  explicit Lru(std::size_t capacity) : capacity_(capacity) {
    need(capacity > 0, "a cache needs room for one");
  }

  /// The value of `key`, made by `make()` when it is not there. Valid until the next call.
  template <class Make>
  Value& get(const Key& key, Make make) {
    if (const auto found = index_.find(key); found != index_.end()) {
      order_.splice(order_.begin(), order_, found->second);
    } else {
      order_.emplace_front(key, make());
      index_[key] = order_.begin();
      if (order_.size() > capacity_) {
        index_.erase(order_.back().first);
        order_.pop_back();
      }
    }
    return order_.front().second;
  }
  std::size_t size() const { return order_.size(); }

 private:
  std::size_t capacity_;
  std::list<std::pair<Key, Value>> order_;  // the latest first
  std::map<Key, typename std::list<std::pair<Key, Value>>::iterator> index_;
};

}  // namespace annulus::cuda
