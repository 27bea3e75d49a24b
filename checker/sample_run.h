// One sample of an operator, run by the generic checker on every layout that it tries.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checker/checker.h"
#include "checker/tuple_choices.h"
#include "dtorch/dtorch.h"

namespace dtorch::checker {

class SampleRun {
 public:
  // name: of the operator, for messages.
  SampleRun(std::string name, const Sample& sample, const CheckOptions& options, OperatorReport& report);

  // Meshes of 2, 3, (2, 2) and wide ones. `required`: tuples of one axis to try in any case.
  void run(const std::vector<std::vector<Placement>>& required);
  // The numbers of those of `required` that were refused.
  const std::vector<size_t>& refused() const { return refused_; }

 private:
  struct Reference {
    std::vector<HostTensor> outputs;
    std::vector<HostTensor> weights;    // of the loss, one an output; undefined where there is no gradient
    std::vector<HostTensor> gradients;  // one an input; undefined where there is none
    bool has_gradients = false;
  };

  void run_one_axis(int64_t devices, const std::vector<Choice>& choices, const std::vector<Choice>& required,
                    std::vector<Choice>* accepted);
  void run_wide(const std::vector<Choice>& accepted);
  bool make_reference();
  bool try_layouts(const std::vector<Layout>& layouts);   // true when the call was legal
  void check_values(const std::vector<Layout>& layouts);  // throws PlacementError when it is refused
  void check_without_cache(const std::vector<Layout>& layouts, const std::vector<Tensor>& outputs);
  void check_gradients(const std::vector<Layout>& layouts);
  void check_gradient(const std::vector<Layout>& layouts, size_t i, const Tensor& gradient);
  void check_refusal(const std::vector<Layout>& layouts, const PlacementError& error);
  void execute_fixes(const std::vector<Layout>& layouts, PlacementError error);
  std::optional<std::map<size_t, Layout>> fix_of(const PlacementError& error, const std::vector<Tensor>& inputs) const;

  std::vector<Tensor> call(const std::vector<Tensor>& inputs) const;
  Layout layout_of(const DeviceMesh& mesh, const Placements& placements, int64_t ndim);
  std::vector<Layout> layouts_of(const DeviceMesh& mesh, const Choice& choice);
  DeviceMesh wide_mesh(const Shape& shape);
  std::vector<Layout> wide_layouts(const DeviceMesh& mesh, const Choice& choice);
  Layout weight_layout(const Tensor& output);
  Tensor input(size_t i, const Layout& layout);
  std::vector<Tensor> inputs(const std::vector<Layout>& layouts, bool leaves);
  Tensor loss_of(const std::vector<Tensor>& outputs);
  double tolerance(DType dtype) const;
  void problem(const std::vector<Layout>& layouts, const std::string& what);
  // `finish` says what is wrong, "" for nothing; it is called when many reads are under way.
  void check_later(const std::vector<Layout>& layouts, std::string name, std::function<std::string()> finish);
  void finish_checks();

  const std::string name_;
  const Sample& sample_;
  const CheckOptions& options_;
  OperatorReport& report_;
  TupleChoices choices_;
  std::vector<HostTensor> values_;
  Reference reference_;
  std::map<std::pair<size_t, const LayoutData*>, Tensor> inputs_;
  std::vector<size_t> refused_;
  struct Pending {
    std::vector<Layout> layouts;
    std::string name;
    std::function<std::string()> finish;
  };
  std::vector<Pending> pending_;
  int64_t num_layouts_ = 0, num_losses_ = 0;
  bool pending_weights_ = false;  // of the last loss
};

}  // namespace dtorch::checker
