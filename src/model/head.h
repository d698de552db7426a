// The two ends of the model: the embedding, and the final norm with the loss over the vocabulary.
#pragma once
#include "model/work.h"

namespace annulus {

/// x (Tl, C) = the rows of the embedding.
Tensor embed_forward(Work&, const RowInputs&);
void embed_backward(Work&, const RowInputs&, const Tensor& dx);

struct LossOut {
  Tensor sums;  // (3) f64, +=: nll, hits and entropy over the row's targets
  Tensor nll;   // (Tl) f32, on the host: of each token, 0 without a target
};

/// With `dx`: writes the gradient of scale * nll with respect to x there and adds to the gradients of the
/// norm and the head's matrix. In tiles of loss_tile tokens: the (Tl, V) matrix of logits never exists.
void loss(Work&, const RowInputs&, const Tensor& x, double scale, const Tensor& dx, const LossOut&);

}  // namespace annulus
