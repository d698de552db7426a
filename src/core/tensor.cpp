#include "core/tensor.h"

namespace annulus {
namespace {

char* advance(const Tensor& t, std::int64_t elements) {
  return static_cast<char*>(t.data) + elements * bytes_of(t.dtype);
}

void set_shape(Tensor& t, std::initializer_list<std::int64_t> shape) {
  need(shape.size() >= 1 && shape.size() <= 4, std::string(t.name) + ": a tensor has 1 to 4 dimensions");
  t.shape = {1, 1, 1, 1};
  t.rank = 0;
  for (std::int64_t n : shape) {
    need(n >= 0, std::string(t.name) + ": negative size");
    t.shape[static_cast<std::size_t>(t.rank++)] = n;
  }
}

}  // namespace

Tensor make_tensor(const char* name, void* data, DType dtype, std::initializer_list<std::int64_t> shape,
                   Place place) {
  Tensor t;
  t.name = name;
  t.data = data;
  t.dtype = dtype;
  t.place = place;
  set_shape(t, shape);
  return t;
}

Tensor Tensor::rows(std::int64_t begin, std::int64_t count) const {
  need(begin >= 0 && count >= 0 && begin + count <= shape[0], std::string(name) + ": rows out of range");
  Tensor t = *this;
  t.data = advance(*this, begin * stride());
  t.shape[0] = count;
  return t;
}

Tensor Tensor::heads(std::int64_t begin, std::int64_t count) const {
  need(rank == 3 && begin >= 0 && count >= 0 && begin + count <= shape[1],
       std::string(name) + ": heads out of range");
  Tensor t = *this;
  t.data = advance(*this, begin * shape[2]);
  t.row_stride = stride();
  t.shape[1] = count;
  return t;
}

Tensor Tensor::columns(std::int64_t begin, std::int64_t count) const {
  need(rank == 2 && begin >= 0 && count >= 0 && begin + count <= shape[1],
       std::string(name) + ": columns out of range");
  Tensor t = *this;
  t.data = advance(*this, begin);
  t.row_stride = stride();
  t.shape[1] = count;
  return t;
}

Tensor Tensor::view(std::initializer_list<std::int64_t> to) const {
  need(contiguous(), std::string(name) + ": view of a strided tensor");
  Tensor t = *this;
  t.row_stride = 0;
  set_shape(t, to);
  need(t.size() == size(), std::string(name) + ": view changes the size");
  return t;
}

Tensor Tensor::span(std::int64_t begin, std::int64_t count) const {
  need(contiguous() && begin >= 0 && count >= 0 && begin + count <= size(),
       std::string(name) + ": span out of range");
  Tensor t = *this;
  t.data = advance(*this, begin);
  t.row_stride = 0;
  set_shape(t, {count});
  return t;
}

}  // namespace annulus
