// batch_norm, group_norm, instance_norm of x [N, C, ...]: compositions of norm.cc. Statistics are those of the global
// tensor: sums of all shards give the mean, then squared distances from it the variance. x may have any placements;
// what is pending is reduced, except where the statistics are given (batch_norm in evaluation, linear in x).
#include "ops/image/halo.h"
#include "ops/image/norm.h"
#include "ops/math/functions.h"
#include "ops/move/combine.h"

namespace dtorch {
namespace image {

void check_norm(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias, const Where& where) {
  const std::string name = "[" + std::string(op) + "] ";
  if (x.ndim() < 2) {
    throw at_line(ShapeError(name + "x has shape " + x.shape().str() + ", expected [N, C, ...]"), where);
  }
  if (!is_floating(x.dtype())) {
    throw at_line(DTypeError(name + "x is " + name_of(x.dtype()) + ", allowed are floating types"), where);
  }
  for (const Tensor* extra : {&weight, &bias}) {
    if (!extra->defined()) continue;
    if (extra->shape() != Shape{x.shape()[1]}) {
      throw at_line(ShapeError(name + "weight or bias has shape " + extra->shape().str() + ", expected " +
                               Shape{x.shape()[1]}.str()),
                    where);
    }
    if (extra->dtype() != x.dtype()) {
      throw at_line(DTypeError(name + "weight or bias is " + name_of(extra->dtype()) + ", x " + name_of(x.dtype()) +
                               "; convert one with to()"),
                    where);
    }
  }
}

bool splits_whole_groups(const Tensor& x, int64_t groups) {
  const int64_t channels = x.shape()[1];
  if (groups == channels) return true;
  if (x.layout().axes_of_dim(1).empty()) return false;
  const std::vector<int64_t> of_channels = part_offsets(x.layout(), 1, channels);
  const std::vector<int64_t> of_groups = part_offsets(x.layout(), 1, groups);
  for (size_t part = 0; part < of_groups.size(); ++part) {
    if (of_groups[part] * (channels / groups) != of_channels[part]) return false;
  }
  return true;
}

NormStatistics norm_statistics(const char* op, const Tensor& x, const NormAttrs& attributes, const Where& where) {
  const Tensor sums = record(norm_sums_op, attributes, {&x}, where);
  if (sums.layout().has_partial()) {
    Placements fixed = x.placements();
    for (int64_t axis = 0; axis < fixed.size(); ++axis) {
      if (sums.placements()[axis].is_partial()) fixed[axis] = Replicate();
    }
    require_implicit_redistribution(op, x, x.layout().with_placements(fixed, x.ndim()), where);
  }
  const int64_t count = sums.numel() == 0 ? 0 : x.numel() / sums.numel();
  const Tensor mean = div(sums.reduced(where), count, where);
  return {mean, record(norm_squares_op, attributes, {&x, &mean}, where).reduced(where), count};
}

Tensor normalize(const char* op, const Tensor& x, const Tensor& mean, const Tensor& variance, const Tensor& weight,
                 const Tensor& bias, NormAttrs attributes, const Where& where) {
  attributes.has_weight = weight.defined();
  attributes.has_bias = bias.defined();
  std::vector<Tensor> in = {x, mean, variance};
  if (weight.defined()) in.push_back(weight);
  if (bias.defined()) in.push_back(bias);
  Tensor outputs[1];
  {
    NoGrad no_grad;
    outputs[0] = record_list(norm_apply_op, attributes, in, 1, where)[0];
  }
  const Tensor saved_x = x.detach(), saved_weight = weight.defined() ? weight.detach() : Tensor();
  std::vector<Tensor> differentiable = {x};
  if (weight.defined()) differentiable.push_back(weight);
  if (bias.defined()) differentiable.push_back(bias);
  set_custom_gradient(
      op, differentiable, outputs,
      [=](const GradientContext& context) {
        const Tensor& g = context.grad_output(0);
        const Where here = Where::current();
        std::vector<Tensor> gradients(context.num_inputs());
        if (context.needs_grad(0)) {
          std::vector<Tensor> inputs = {g, saved_x, mean, variance};
          if (attributes.moving) {
            std::vector<Tensor> of_sums = {g, saved_x, mean};
            if (attributes.has_weight) of_sums.push_back(saved_weight);
            for (const Tensor& sums : record_list(norm_grad_sums_op, attributes, of_sums, 2, here)) {
              inputs.push_back(sums.reduced());
            }
          }
          if (attributes.has_weight) inputs.push_back(saved_weight);
          gradients[0] = record_list(norm_input_grad_op, attributes, inputs, 1, here)[0];
        }
        const size_t bias_at = attributes.has_weight ? 2 : 1;
        const bool needs_weight = attributes.has_weight && context.needs_grad(1);
        const bool needs_bias = attributes.has_bias && context.needs_grad(bias_at);
        if (needs_weight || needs_bias) {
          const auto of_channels =
              record_many<2>(norm_weight_grad_op, attributes, {&g, &saved_x, &mean, &variance}, here);
          if (needs_weight) gradients[1] = of_channels[0];
          if (needs_bias) gradients[bias_at] = of_channels[1];
        }
        return gradients;
      },
      where);
  return outputs[0];
}

namespace {

std::vector<Sample> batch_norm_samples() {
  const auto training = [](const std::vector<Tensor>& in) {
    const BatchNormResult result = batch_norm(in[0], in[1], in[1], {}, {}, {.training = true, .momentum = 0.3});
    return std::vector<Tensor>{result.y, result.running_mean, result.running_var};
  };
  const auto affine = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{batch_norm(in[0], {}, {}, in[1], in[2], {.training = true}).y};
  };
  const auto evaluation = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{batch_norm(in[0], in[1], in[2], in[3], in[4]).y};
  };
  const SampleInput running{{3}, kFloat64, SampleFill::kPositive, 0, false};
  const SampleInput running_mean{{3}, kFloat32, SampleFill::kNormal, 0, false};
  const SampleInput running_var{{3}, kFloat32, SampleFill::kPositive, 0, false};
  return {
      {.name = "training, uneven", .inputs = {{{5, 3, 2, 1}, kFloat64}, running}, .call = training, .tolerance = 1e-11},
      {.name = "training with weight", .inputs = {{{2, 3, 5}}, {{3}}, {{3}}}, .call = affine},
      {.name = "evaluation", .inputs = {{{5, 3}}, running_mean, running_var, {{3}}, {{3}}}, .call = evaluation}};
}
std::vector<Sample> group_norm_samples() {
  const auto affine = [](int64_t groups) {
    return [groups](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{group_norm(in[0], groups, in[1], in[2])};
    };
  };
  return {{.name = "uneven",
           .inputs = {{{2, 6, 5}, kFloat64}, {{6}, kFloat64}, {{6}, kFloat64}},
           .call = affine(3),
           .tolerance = 1e-11},
          {.name = "groups are cut", .inputs = {{{1, 4, 3, 2}}, {{4}}, {{4}}}, .call = affine(1)},
          {.name = "no weight", .inputs = {{{3, 4, 1}}}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{group_norm(in[0], 4), group_norm(in[0], 2)};
           }}};
}
std::vector<Sample> instance_norm_samples() {
  return {
      {.name = "uneven",
       .inputs = {{{2, 3, 5}, kFloat64}, {{3}, kFloat64}, {{3}, kFloat64}},
       .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{instance_norm(in[0], in[1], in[2])}; },
       .tolerance = 1e-11},
      {.name = "one batch element", .inputs = {{{1, 2, 3, 4}}}, .call = [](const std::vector<Tensor>& in) {
         return std::vector<Tensor>{instance_norm(in[0])};
       }}};
}

Tensor normalize_groups(const char* op, const Tensor& given, int64_t groups, const Tensor& weight, const Tensor& bias,
                        double eps, const Where& where) {
  check_norm(op, given, weight, bias, where);
  if (groups < 1 || given.shape()[1] % groups != 0) {
    throw at_line(ShapeError("[" + std::string(op) + "] " + std::to_string(given.shape()[1]) + " channels of " +
                             given.shape().str() + " aren't a multiple of " + std::to_string(groups) + " groups"),
                  where);
  }
  const Tensor x = reduce_pending(op, given, {}, where);
  NormAttrs attributes{.groups = groups, .whole_groups = splits_whole_groups(x, groups), .eps = eps};
  NormStatistics statistics;
  {
    NoGrad no_grad;
    statistics = norm_statistics(op, x.detach(), attributes, where);
    statistics.squares = div(statistics.squares, statistics.count, where);
  }
  return normalize(op, x, statistics.mean, statistics.squares, weight, bias, attributes, where);
}

}  // namespace
}  // namespace image

constinit OperatorDef batch_norm_op = {
    .name = "batch_norm",
    .signature = "batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps) -> BatchNormResult",
    .samples = image::batch_norm_samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "(weight, bias); in evaluation (x, running_mean, bias)",
};
constinit OperatorDef group_norm_op = {
    .name = "group_norm",
    .signature = "group_norm(x, num_groups, weight, bias, eps) -> Tensor",
    .samples = image::group_norm_samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "(weight, bias)",
};
constinit OperatorDef instance_norm_op = {
    .name = "instance_norm",
    .signature = "instance_norm(x, weight, bias, eps) -> Tensor",
    .samples = image::instance_norm_samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "(weight, bias)",
};

BatchNormResult batch_norm(const Tensor& given, const Tensor& running_mean, const Tensor& running_var,
                           const Tensor& weight, const Tensor& bias, const BatchNormOptions& options, Where where) {
  const SourceScope scope(where);
  image::check_norm("batch_norm", given, weight, bias, where);
  image::check_norm("batch_norm", given, running_mean, running_var, where);
  const bool tracked = running_mean.defined() && running_var.defined();
  const int64_t channels = given.shape()[1];
  image::NormAttrs attributes{
      .groups = channels, .over_batch = true, .whole_groups = true, .moving = options.training, .eps = options.eps};
  if (!options.training) {
    if (!tracked) throw at_line(UserError("[batch_norm] evaluation needs running_mean and running_var"), where);
    Tensor mean, variance;
    {
      NoGrad no_grad;
      mean = to(running_mean.detach(), kFloat64, where);
      variance = to(running_var.detach(), kFloat64, where);
    }
    return {image::normalize("batch_norm", given, mean, variance, weight, bias, attributes, where), running_mean,
            running_var};
  }
  if (channels == 0 || given.numel() / channels < 2) {
    throw at_line(ShapeError("[batch_norm] training needs more than one value a channel, x is " + given.shape().str()),
                  where);
  }
  const Tensor x = reduce_pending("batch_norm", given, {}, where);
  Tensor variance, new_mean = running_mean, new_variance = running_var;
  image::NormStatistics statistics;
  {
    NoGrad no_grad;
    statistics = image::norm_statistics("batch_norm", x.detach(), attributes, where);
    variance = div(statistics.squares, statistics.count, where);
    // The running variance is of a sample: divided by one less.
    const auto moved = [&](const Tensor& old, const Tensor& now) {
      return add(mul(old.detach(), 1 - options.momentum, where),
                 to(mul(now, options.momentum, where), old.dtype(), where), where);
    };
    if (running_mean.defined()) new_mean = moved(running_mean, statistics.mean);
    if (running_var.defined()) new_variance = moved(running_var, div(statistics.squares, statistics.count - 1, where));
  }
  return {image::normalize("batch_norm", x, statistics.mean, variance, weight, bias, attributes, where), new_mean,
          new_variance};
}

Tensor group_norm(const Tensor& x, int64_t num_groups, const Tensor& weight, const Tensor& bias, double eps,
                  Where where) {
  const SourceScope scope(where);
  return image::normalize_groups("group_norm", x, num_groups, weight, bias, eps, where);
}
Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, Where where) {
  const SourceScope scope(where);
  return image::normalize_groups("instance_norm", x, x.ndim() < 2 ? 1 : x.shape()[1], weight, bias, eps, where);
}

}  // namespace dtorch
