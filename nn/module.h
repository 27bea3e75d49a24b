// Parameter and Module. A Module is a handle: copies share parameters and children. A Parameter is a cell (D1): the
// optimizer rebinds it to a new value; its gradient and its identity stay.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/client/tensor.h"

namespace dtorch::nn {

// How a parameter that is stored split (ZeRO) is brought to the layout in which it is used. Its optimizer state is
// split in every stage.
enum class Gather : uint8_t {
  kOncePerStep,          // stage 1: kept from its first use to the next step; its gradient is reduced once, at the end
  kOncePerStepReducing,  // stage 2: as stage 1, but every backward leaves a split gradient only
  kPerUse,               // stage 3: gathered for each use and again in backward; only the split tensor lives in between
};

class Parameter {
 public:
  Parameter() = default;
  explicit Parameter(Tensor value);  // makes it a leaf that needs a gradient
  bool defined() const { return state_ != nullptr; }
  const Tensor& value() const { return state_->value; }
  operator const Tensor&() const { return state_->value; }
  const Shape& shape() const { return value().shape(); }
  const Layout& layout() const { return value().layout(); }
  // Rebinds to a new value of the same shape and dtype (ShapeError / DTypeError otherwise); the layout may change
  // (`to`).
  void set_value(const Tensor& value);
  Tensor grad(Where where = Where::current()) const;
  void set_grad(const Tensor& grad);
  void zero_grad();
  bool is_same(const Parameter& other) const { return state_ == other.state_; }
  const void* identity() const { return state_.get(); }

  // How files show it (D9): e.g. [H, hd, D] as [H * hd, D]. Empty: as it is.
  const Shape& file_shape() const { return state_->file_shape.empty() ? shape() : state_->file_shape; }
  Parameter& with_file_shape(Shape shape);

  // The value in the layout and dtype in which the layer computes: where it is stored split further (ZeRO), it is
  // gathered here, and its gradient comes back reduce-scattered; where it is stored wider (master weights), it is
  // converted first, so that the narrow values travel.
  Tensor use(Where where = Where::current()) const;
  // The same on another mesh (a tied weight of another pipeline stage): fetched once a step; what it collects there as
  // a gradient is added to the parameter's when that is read.
  Tensor use_on(const Layout& layout, Where where = Where::current()) const;
  Parameter& with_use_layout(const Layout& layout, Gather gather = Gather::kPerUse);
  Parameter& with_use_dtype(DType dtype);

 private:
  struct State {
    Tensor value;
    Shape file_shape;
    Layout use_layout;
    Gather gather = Gather::kPerUse;
    std::optional<DType> use_dtype;
    Tensor gathered;                // of this step; in stage 1 a leaf that collects the gradient
    std::vector<Tensor> elsewhere;  // of this step, leaves
  };
  Tensor converted(const Tensor& stored, const Where& where) const;
  std::shared_ptr<State> state_;
};

using NamedParameters = std::vector<std::pair<std::string, Parameter>>;

class Module {
 public:
  Module();
  // Every parameter once, in order of registration, with dotted names ("layers.0.wq"); a shared (tied) one under its
  // first name.
  NamedParameters named_parameters() const;
  std::vector<Parameter> parameters() const;
  // Logical tensors by name (values, without autograd).
  std::vector<std::pair<std::string, Tensor>> state_dict() const;
  // `source(name, parameter)` gives the new value with the parameter's layout, or an undefined Tensor when it has none
  // of that name. Strict: `names` (all names the source has), missing, unexpected and mis-shaped keys are listed in one
  // KeyError; nothing is half loaded.
  struct Source {
    std::vector<std::string> names;
    std::function<Shape(const std::string&)> shape_of;  // in the source
    std::function<Tensor(const std::string&, const Parameter&)> load;
  };
  void load_state_dict(const Source& source, bool strict = true, Where where = Where::current());
  void load_state_dict(const std::map<std::string, HostTensor>& tensors, bool strict = true,
                       Where where = Where::current());
  void zero_grad();
  void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const { return state_->training; }
  // Redistributes every parameter; `placements` of a parameter by its name.
  void to(const DeviceMesh& mesh, const std::function<Placements(const std::string&, const Parameter&)>& placements,
          Where where = Where::current());
  // The same placements for every parameter.
  void to(const DeviceMesh& mesh, const Placements& placements, Where where = Where::current()) {
    const auto same = [&](const std::string&, const Parameter&) { return placements; };
    to(mesh, same, where);
  }
  int64_t num_parameters() const;  // elements

 protected:
  Parameter register_parameter(const std::string& name, Tensor value);
  Parameter register_parameter(const std::string& name, Parameter parameter);
  template <class M>
  M register_module(const std::string& name, M module) {
    add_child(name, module.state_);
    return module;
  }

 private:
  struct State {
    std::vector<std::pair<std::string, Parameter>> parameters;
    std::vector<std::pair<std::string, std::shared_ptr<State>>> children;
    bool training = true;
  };
  void add_child(const std::string& name, std::shared_ptr<State> child);
  static void collect(const State& state, const std::string& prefix, std::set<const void*>& seen, NamedParameters& out);
  static void set_training(State& state, bool on);
  std::shared_ptr<State> state_;
};

}  // namespace dtorch::nn
