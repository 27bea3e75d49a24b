#include "nn/optim.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>
#include <tuple>

#include "ops/nn/functions.h"
#include "ops/ops.h"
#include "runtime/client/gradient.h"
#include "runtime/client/graph.h"
#include "runtime/client/graph_core.h"

namespace dtorch {
namespace {

// A scalar brought to every device of a mesh; undefined stays so.
Tensor replicated_on(const DeviceMesh& mesh, const Tensor& scalar, const Where& where) {
  return scalar.defined() ? scalar.redistribute(Layout::replicated(mesh), where) : scalar;
}

}  // namespace
}  // namespace dtorch

namespace dtorch::optim {

Optimizer::Optimizer(std::vector<Parameter> parameters, double lr) : parameters_(std::move(parameters)), lr_(lr) {
  if (parameters_.empty()) throw UserError("[optimizer] no parameters");
}

void Optimizer::run_step(const Tensor& number, Where where) {
  update(number, where);
  // The subgraph ends here, with the old values given up, and not at the step's operator: so it may write into them.
  std::set<GraphCore*> flushed;
  for (const Parameter& parameter : parameters_) {
    GraphCore& graph = parameter.value().value()->graph();
    if (flushed.insert(&graph).second) graph.flush();
  }
}

void Optimizer::zero_grad() {
  for (Parameter& parameter : parameters_) parameter.zero_grad();
}

std::vector<Optimizer::Group> Optimizer::groups() const {
  std::map<std::tuple<const GraphCore*, const MeshData*, DType>, size_t> index;
  std::vector<Group> out;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& value = parameters_[i].value();
    auto [at, is_new] = index.try_emplace({&value.value()->graph(), value.mesh().data(), value.dtype()}, out.size());
    if (is_new) out.emplace_back();
    out[at->second].members.push_back(i);
  }
  return out;
}

Tensor Optimizer::gradient_or_zero(const Parameter& parameter, Where where) const {
  Tensor grad = parameter.grad(where);
  if (!grad.defined()) return zeros_like(parameter.value(), {}, where);
  return grad.dtype() == parameter.value().dtype() ? grad : grad.to(parameter.value().dtype(), where);
}

void Optimizer::check_state(const std::vector<StateTensors>& state) const {
  if (state.size() != parameters_.size()) {
    throw KeyError("[optimizer] state of " + std::to_string(state.size()) + " parameters, there are " +
                   std::to_string(parameters_.size()));
  }
  for (size_t i = 0; i < state.size(); ++i) {
    for (const std::string& name : state_names()) {
      auto found = state[i].find(name);
      if (found == state[i].end())
        throw KeyError("[optimizer] parameter " + std::to_string(i) + " has no '" + name + "'");
      if (!(found->second.shape() == parameters_[i].shape())) {
        throw ShapeError("[optimizer] '" + name + "' of parameter " + std::to_string(i) + " has shape " +
                         found->second.shape().str() + ", expected " + parameters_[i].shape().str());
      }
    }
  }
}

AdamW::AdamW(std::vector<Parameter> parameters, const AdamWOptions& options)
    : Optimizer(std::move(parameters), options.lr), options_(options) {
  if (options.betas.size() != 2) throw UserError("[AdamW] betas needs two numbers");
}

void AdamW::update(const Tensor& number, Where where) {
  SourceScope scope(where);
  NoGrad no_grad;
  if (m_.empty()) {
    for (const Parameter& parameter : parameters_) {
      m_.push_back(zeros_like(parameter.value(), {}, where));
      v_.push_back(zeros_like(parameter.value(), {}, where));
    }
  }
  ++steps_;
  const AdamWConstants constants{options_.betas[0], options_.betas[1], options_.eps, options_.weight_decay};
  for (const Group& group : groups()) {
    std::vector<Tensor> params, grads, m, v;
    for (size_t i : group.members) {
      params.push_back(parameters_[i].value().detach());
      grads.push_back(gradient_or_zero(parameters_[i], where));
      m.push_back(m_[i]);
      v.push_back(v_[i]);
    }
    AdamWResult result =
        adamw_step(params, grads, m, v, lr_, steps_, constants, replicated_on(params[0].mesh(), number, where), where);
    for (size_t k = 0; k < group.members.size(); ++k) {
      const size_t i = group.members[k];
      parameters_[i].set_value(result.params[k]);
      m_[i] = result.first_moments[k];
      v_[i] = result.second_moments[k];
    }
  }
}

std::vector<StateTensors> AdamW::state() const {
  std::vector<StateTensors> out;
  for (size_t i = 0; i < m_.size(); ++i) out.push_back({{"m", m_[i]}, {"v", v_[i]}});
  return out;
}

void AdamW::load_state(const std::vector<StateTensors>& state) {
  check_state(state);
  m_.clear();
  v_.clear();
  for (const StateTensors& tensors : state) {
    m_.push_back(tensors.at("m"));
    v_.push_back(tensors.at("v"));
  }
}

SGD::SGD(std::vector<Parameter> parameters, const SGDOptions& options)
    : Optimizer(std::move(parameters), options.lr), options_(options) {}

void SGD::update(const Tensor& number, Where where) {
  SourceScope scope(where);
  NoGrad no_grad;
  ++steps_;
  const bool has_momentum = options_.momentum != 0;
  const bool first = has_momentum && buffers_.empty();
  if (first) buffers_.resize(parameters_.size());
  const SgdConstants constants{options_.momentum, options_.weight_decay, options_.nesterov};
  for (const Group& group : groups()) {
    std::vector<Tensor> params, grads, buffers;
    for (size_t i : group.members) {
      params.push_back(parameters_[i].value().detach());
      grads.push_back(gradient_or_zero(parameters_[i], where));
      if (has_momentum && !first) buffers.push_back(buffers_[i]);
    }
    SgdResult result =
        sgd_step(params, grads, buffers, lr_, constants, replicated_on(params[0].mesh(), number, where), where);
    for (size_t k = 0; k < group.members.size(); ++k) {
      parameters_[group.members[k]].set_value(result.params[k]);
      if (has_momentum) buffers_[group.members[k]] = result.buffers[k];
    }
  }
}

std::vector<std::string> SGD::state_names() const {
  if (options_.momentum == 0) return {};
  return {"momentum"};
}

std::vector<StateTensors> SGD::state() const {
  std::vector<StateTensors> out;
  for (const Tensor& buffer : buffers_) out.push_back({{"momentum", buffer}});
  return out;
}

void SGD::load_state(const std::vector<StateTensors>& state) {
  if (options_.momentum == 0) return;
  check_state(state);
  buffers_.clear();
  for (const StateTensors& tensors : state) buffers_.push_back(tensors.at("momentum"));
}

double Schedule::at(int64_t step) const {
  if (step < warmup_steps) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  if (kind == Kind::kConstant || total_steps <= warmup_steps) return lr;
  double done = static_cast<double>(step - warmup_steps) / static_cast<double>(total_steps - warmup_steps);
  done = std::min(done, 1.0);
  double share = kind == Kind::kLinear ? 1 - done : 0.5 * (1 + std::cos(std::numbers::pi * done));
  return lr * (final_ratio + (1 - final_ratio) * share);
}

Schedule::Kind Schedule::kind_from_name(const std::string& name) {
  if (name == "constant") return Kind::kConstant;
  if (name == "linear") return Kind::kLinear;
  if (name == "cosine") return Kind::kCosine;
  throw UserError("[schedule] '" + name + "' isn't one of constant, linear, cosine");
}

}  // namespace dtorch::optim

namespace dtorch::nn {

Tensor clip_grad_norm(const std::vector<Parameter>& parameters, double max_norm, const ClipOptions& options,
                      Where where) {
  SourceScope scope(where);
  NoGrad no_grad;
  // Gradients by (mesh, dtype), in order of first appearance.
  std::map<std::pair<const MeshData*, DType>, size_t> index;
  std::vector<std::vector<size_t>> members;
  std::vector<std::vector<Tensor>> grads;
  for (size_t i = 0; i < parameters.size(); ++i) {
    Tensor grad = parameters[i].grad(where);
    if (!grad.defined()) continue;
    if (options.loss_scale.defined() && grad.dtype() == kFloat16) {
      throw UserError("[clip_grad_norm] the gradient of parameter " + std::to_string(i) +
                      " is float16, where small numbers vanish without the loss scale; make the parameter float32 and "
                      "compute with it in float16 (with_use_dtype(kFloat16), LlamaParallel::compute)");
    }
    auto [at, is_new] = index.try_emplace({grad.mesh().data(), grad.dtype()}, grads.size());
    if (is_new) {
      members.emplace_back();
      grads.emplace_back();
    }
    members[at->second].push_back(i);
    grads[at->second].push_back(std::move(grad));
  }
  if (grads.empty()) throw UserError("[clip_grad_norm] no parameter has a gradient; call backward first");
  const DeviceMesh home = grads[0][0].mesh();
  Tensor total;
  for (const std::vector<Tensor>& group : grads) {
    Tensor squares = sum_of_squares(group, where);
    squares = replicated_on(home, squares, where);
    total = total.defined() ? add(total, squares, where) : squares;
  }
  const Tensor scale = replicated_on(home, options.loss_scale, where);
  Tensor norm = total.sqrt(where);
  if (scale.defined()) norm = div(norm, scale, where);
  Tensor factor = (max_norm / (norm + options.eps)).clamp({}, 1.0, where);
  if (scale.defined()) factor = div(factor, scale, where);
  for (size_t g = 0; g < grads.size(); ++g) {
    const Tensor here = replicated_on(grads[g][0].mesh(), factor, where);
    std::vector<Tensor> scaled = scale_all(grads[g], here, where);
    for (size_t k = 0; k < scaled.size(); ++k) Parameter(parameters[members[g][k]]).set_grad(scaled[k]);
  }
  return norm;
}

}  // namespace dtorch::nn
