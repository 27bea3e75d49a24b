#include "runtime/client/tensor.h"

#include <ostream>

#include "runtime/client/gradient.h"
#include "runtime/client/graph_core.h"
#include "runtime/client/lineage.h"

namespace dtorch {

Value::~Value() { graph_->release(slot_); }
void Value::set_lineage(IntrusivePtr<Lineage> lineage) { lineage_ = std::move(lineage); }

void Tensor::throw_undefined() { throw UserError("an undefined Tensor (default-constructed) was used"); }

int64_t Tensor::size(int64_t dim) const { return shape()[normalize_dim(dim, ndim(), "size")]; }

std::string Tensor::str() const {
  if (!defined()) return "Tensor (undefined)";
  return "Tensor " + meta().str() + (requires_grad() ? ", requires_grad" : "");
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) { return out << tensor.str(); }

bool Tensor::is_leaf() const { return !autograd_ || !autograd_->node; }

Tensor& Tensor::requires_grad_(bool on) {
  const TensorMeta& own = meta();
  if (on && !autograd_) {
    if (!is_floating(own.dtype)) {
      throw DTypeError(std::string("[requires_grad_] only floating-point tensors have gradients, this one is ") +
                       name_of(own.dtype));
    }
    autograd_ = make_intrusive<AutogradMeta>();
    autograd_->meta = &own;
  } else if (!on && autograd_) {
    if (!is_leaf())
      throw UserError(
          "[requires_grad_] the result of an operator can't be switched off; detach() gives one without gradient");
    autograd_.reset();
  }
  return *this;
}

Tensor Tensor::detach() const { return Tensor(value_, {}); }

void Tensor::retain_grad() const {
  if (!autograd_) throw UserError("[retain_grad] this tensor needs no gradient");
  autograd_->retain = true;
}

Layout TensorOptions::layout(int64_t ndim, const Where& where) const {
  const DeviceMesh on = mesh ? mesh : DeviceMesh("cpu", {1}, {0});
  Placements wanted = placements;
  if (wanted.empty()) wanted.resize(on.num_axes());
  return order.empty() ? Layout(on, wanted, ndim, where) : Layout(on, wanted, ndim, order, where);
}

}  // namespace dtorch
