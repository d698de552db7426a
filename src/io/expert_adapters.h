// Adapters of experts are two matrices in PEFT's file, and stacks with one for each of E experts everywhere
// else:
//   lora_A (E r, in), row e r + j       ->  (E, r, in), the same elements in the same order
//   lora_B (out, r E), column j E + e   ->  (E, out, r)
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>
#include "core/tensor.h"

namespace annulus {

using Shape = std::vector<std::int64_t>;

/// Whether a tensor of PEFT's is one of an adapter of experts, by its name.
bool is_expert_adapter(const std::string& name);
/// The stack that a matrix of that name and shape is, at this rank; the shape as it is where there is none.
Shape stack_shape(const std::string& name, const Shape& matrix, std::int64_t rank);
/// The matrix that a stack is in PEFT's file; other shapes stay.
Shape matrix_shape(const std::string& name, const Shape& stack);

/// read(from, count, to): elements of the other form, in row-major order, into host memory.
using ReadElements = std::function<void(std::int64_t from, std::int64_t count, const Tensor& to)>;
/// Elements [from, from + count) of a stack (E, out, r), out of lora_B's matrix.
void stack_from_matrix(const Shape& stack, const ReadElements& read, std::int64_t from, std::int64_t count,
                       const Tensor& to);
/// Elements [from, from + count) of lora_B's matrix, out of the stack.
void matrix_from_stack(const Shape& stack, const ReadElements& read, std::int64_t from, std::int64_t count,
                       const Tensor& to);

}  // namespace annulus
