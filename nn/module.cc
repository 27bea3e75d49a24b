#include "nn/module.h"

#include <algorithm>
#include <set>

#include "ops/ops.h"
#include "runtime/autograd/backward.h"
#include "runtime/client/call_error.h"
#include "runtime/client/gradient.h"
#include "runtime/client/graph.h"

namespace dtorch::nn {

Parameter::Parameter(Tensor value) : state_(std::make_shared<State>()) {
  state_->value = value.detach();
  state_->value.requires_grad_();
  state_->use_layout = value.layout();
}

void Parameter::set_value(const Tensor& value) {
  if (!(value.shape() == shape())) {
    throw ShapeError("[parameter] a value of shape " + value.shape().str() + " for a parameter of shape " +
                     shape().str());
  }
  if (value.dtype() != this->value().dtype()) {
    throw DTypeError(std::string("[parameter] a value of ") + name_of(value.dtype()) + " for a parameter of " +
                     name_of(this->value().dtype()));
  }
  IntrusivePtr<AutogradMeta> autograd = state_->value.autograd();
  autograd->meta = &value.meta();
  state_->value = Tensor(value.value(), std::move(autograd));
  state_->gathered = Tensor();
  state_->elsewhere.clear();
}

Tensor Parameter::grad(Where where) const {
  const auto collect = [&](Tensor& leaf) {
    if (!leaf.defined() || !leaf.requires_grad()) return;
    const Tensor collected = pending_grad(leaf);
    if (collected.defined()) add_to_grad(value(), collected, where);
    leaf.zero_grad();
  };
  collect(state_->gathered);
  for (Tensor& leaf : state_->elsewhere) collect(leaf);
  return value().grad(where);
}

void Parameter::set_grad(const Tensor& grad) {
  zero_grad();
  value().autograd()->pending_grad = grad.detach();
}

void Parameter::zero_grad() {
  value().autograd()->pending_grad = Tensor();
  if (state_->gathered.defined()) state_->gathered.zero_grad();
  for (Tensor& leaf : state_->elsewhere) leaf.zero_grad();
}

Parameter& Parameter::with_file_shape(Shape shape) {
  DTORCH_CHECK(shape.num_elements() == value().numel(), "file shape " + shape.str() + " of " + this->shape().str());
  state_->file_shape = shape;
  return *this;
}

Parameter& Parameter::with_use_layout(const Layout& layout, Gather gather) {
  state_->use_layout = layout;
  state_->gather = gather;
  state_->gathered = Tensor();
  return *this;
}

Parameter& Parameter::with_use_dtype(DType dtype) {
  if (!is_floating(dtype)) throw DTypeError(std::string("[parameter] a use dtype of ") + name_of(dtype));
  state_->use_dtype = dtype;
  state_->gathered = Tensor();
  return *this;
}

Tensor Parameter::converted(const Tensor& stored, const Where& where) const {
  return stored.to(state_->use_dtype.value_or(stored.dtype()), where).redistribute(state_->use_layout, where);
}

Tensor Parameter::use(Where where) const {
  const bool is_split = !(state_->use_layout == layout());
  if (!is_split) return converted(value(), where);
  if (state_->gather == Gather::kPerUse) {
    const Tensor stored = value().to(state_->use_dtype.value_or(value().dtype()), where);
    Tensor gathered = stored.redistribute(state_->use_layout, where);
    if (gathered.requires_grad()) gathered.autograd()->kept_as = stored.value();
    return gathered;
  }
  Tensor& gathered = state_->gathered;
  if (!gathered.defined()) {
    NoGrad no_grad;
    gathered = converted(value().detach(), where);
    if (state_->gather == Gather::kOncePerStep) gathered.requires_grad_();
  }
  if (state_->gather == Gather::kOncePerStep) return grad_enabled() ? gathered : gathered.detach();
  Tensor use = gathered.detach();
  set_custom_gradient(
      "gather", {&value(), 1}, {&use, 1},
      [](const GradientContext& context) { return std::vector<Tensor>{context.grad_output(0)}; }, where);
  return use;
}

Tensor Parameter::use_on(const Layout& layout, Where where) const {
  for (const Tensor& leaf : state_->elsewhere) {
    if (leaf.layout() == layout) return grad_enabled() ? leaf : leaf.detach();
  }
  NoGrad no_grad;
  Tensor leaf = value().detach().to(state_->use_dtype.value_or(value().dtype()), where).redistribute(layout, where);
  leaf.requires_grad_();
  state_->elsewhere.push_back(leaf);
  return leaf;
}

Module::Module() : state_(std::make_shared<State>()) {}

Parameter Module::register_parameter(const std::string& name, Tensor value) {
  return register_parameter(name, Parameter(std::move(value)));
}

Parameter Module::register_parameter(const std::string& name, Parameter parameter) {
  for (const auto& [known, unused] : state_->parameters) {
    if (known == name) throw KeyError("[module] a parameter named '" + name + "' is registered already");
  }
  state_->parameters.emplace_back(name, parameter);
  return parameter;
}

void Module::add_child(const std::string& name, std::shared_ptr<State> child) {
  for (const auto& [known, unused] : state_->children) {
    if (known == name) throw KeyError("[module] a module named '" + name + "' is registered already");
  }
  state_->children.emplace_back(name, std::move(child));
}

void Module::collect(const State& state, const std::string& prefix, std::set<const void*>& seen, NamedParameters& out) {
  for (const auto& [name, parameter] : state.parameters) {
    if (seen.insert(parameter.identity()).second) out.emplace_back(prefix + name, parameter);
  }
  for (const auto& [name, child] : state.children) collect(*child, prefix + name + ".", seen, out);
}

NamedParameters Module::named_parameters() const {
  NamedParameters out;
  std::set<const void*> seen;
  collect(*state_, "", seen, out);
  return out;
}

std::vector<Parameter> Module::parameters() const {
  std::vector<Parameter> out;
  for (auto& [name, parameter] : named_parameters()) out.push_back(parameter);
  return out;
}

std::vector<std::pair<std::string, Tensor>> Module::state_dict() const {
  std::vector<std::pair<std::string, Tensor>> out;
  for (auto& [name, parameter] : named_parameters()) out.emplace_back(name, parameter.value().detach());
  return out;
}

void Module::load_state_dict(const Source& source, bool strict, Where where) {
  SourceScope scope(where);
  NamedParameters own = named_parameters();
  std::set<std::string> offered(source.names.begin(), source.names.end());
  std::string problems;
  std::vector<std::pair<std::string, Parameter>> to_load;
  for (auto& [name, parameter] : own) {
    if (offered.erase(name) == 0) {
      if (strict) problems += "\n  missing: " + name;
      continue;
    }
    Shape there = source.shape_of(name);
    if (there == parameter.shape() || there == parameter.file_shape()) {
      to_load.emplace_back(name, parameter);
    } else {
      problems += "\n  shape of " + name + ": " + there.str() + ", the model has " + parameter.file_shape().str();
    }
  }
  if (strict) {
    for (const std::string& name : offered) problems += "\n  unexpected: " + name;
  }
  if (!problems.empty())
    throw at_line(KeyError("[load_state_dict] the state doesn't fit the model; nothing was loaded:" + problems), where);
  std::vector<Tensor> values;
  for (auto& [name, parameter] : to_load) values.push_back(source.load(name, parameter));
  for (size_t i = 0; i < to_load.size(); ++i) to_load[i].second.set_value(values[i]);
}

void Module::load_state_dict(const std::map<std::string, HostTensor>& tensors, bool strict, Where where) {
  SourceScope scope(where);
  Source source;
  for (const auto& [name, tensor] : tensors) source.names.push_back(name);
  source.shape_of = [&](const std::string& name) { return tensors.at(name).shape(); };
  source.load = [&](const std::string& name, const Parameter& parameter) {
    HostTensor data = tensors.at(name).to(parameter.value().dtype());
    HostTensor shaped(parameter.shape(), data.dtype(), data.shared_bytes());
    Tensor value =
        from_host(shaped, {.mesh = parameter.value().mesh(), .placements = parameter.value().placements()}, where);
    return value.redistribute(parameter.layout(), where);
  };
  load_state_dict(source, strict, where);
}

void Module::zero_grad() {
  for (Parameter& parameter : parameters()) parameter.zero_grad();
}

void Module::set_training(State& state, bool on) {
  state.training = on;
  for (auto& [name, child] : state.children) set_training(*child, on);
}

void Module::train(bool on) { set_training(*state_, on); }

void Module::to(const DeviceMesh& mesh,
                const std::function<Placements(const std::string&, const Parameter&)>& placements, Where where) {
  SourceScope scope(where);
  NoGrad no_grad;
  for (auto& [name, parameter] : named_parameters()) {
    Tensor moved = parameter.value().detach().redistribute(mesh, placements(name, parameter), {}, where);
    parameter.set_value(moved);
    parameter.zero_grad();
    parameter.with_use_layout(moved.layout());
  }
}

int64_t Module::num_parameters() const {
  int64_t count = 0;
  for (auto& [name, parameter] : named_parameters()) count += parameter.value().numel();
  return count;
}

}  // namespace dtorch::nn
