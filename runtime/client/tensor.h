// Tensor: a symbolic handle. It knows shape, dtype, mesh and placements; its data is on the devices. Cheap to copy.
// Values are immutable (D1). A Tensor belongs to the user thread of its Graph; the last handle may be dropped from any
// thread.
#pragma once
#include <initializer_list>
#include <iosfwd>
#include <map>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mesh/layout.h"
#include "runtime/base/intrusive.h"
#include "runtime/base/recycled.h"
#include "runtime/client/future.h"
#include "runtime/client/host_tensor.h"
#include "runtime/graph/logical_graph.h"

namespace dtorch {

class Graph;
class GraphCore;
class GradNode;
class AutogradMeta;
class Lineage;
class Tensor;
void counted_add_ref(GraphCore* object);
void counted_release(GraphCore* object);
void counted_add_ref(GradNode* object);
void counted_release(GradNode* object);
void counted_add_ref(AutogradMeta* object);
void counted_release(AutogradMeta* object);
void counted_add_ref(Lineage* object);
void counted_release(Lineage* object);

// The place of a call in the user's program; always the last, defaulted parameter.
using Where = std::source_location;

// Which call a value comes from, for explain(). The column tells calls on one line apart; 0: a scope gave the line.
struct Origin {
  const OperatorSpec* spec = nullptr;  // lives as long as the Graph
  SourceLine where;
  uint32_t column = 0;
  friend bool operator==(const Origin& a, const Origin& b) { return a.spec == b.spec && a.same_place(b); }
  bool same_place(const Origin& other) const {
    return where.file == other.where.file && where.line == other.where.line && column == other.column;
  }
};

// One value in a Graph: its slot, freed when the last handle goes away.
class Value : public RefCounted, public Recycled<Value> {
 public:
  Value(IntrusivePtr<GraphCore> graph, OperandId slot, const TensorMeta* meta, const Origin& origin = {})
      : graph_(std::move(graph)), slot_(slot), meta_(meta), origin_(origin) {}
  ~Value();
  GraphCore& graph() const { return *graph_; }
  OperandId slot() const { return slot_; }
  const TensorMeta* meta() const { return meta_; }
  const Origin& origin() const { return origin_; }
  // The calls that lead here; null unless set_explain(true) was in force.
  const IntrusivePtr<Lineage>& lineage() const { return lineage_; }
  void set_lineage(IntrusivePtr<Lineage> lineage);

 private:
  IntrusivePtr<GraphCore> graph_;
  const OperandId slot_;
  const TensorMeta* const meta_;
  const Origin origin_;
  IntrusivePtr<Lineage> lineage_;
};

// A dtype that knows whether the user gave it: arange and randint make integers unless told otherwise.
struct OptionalDType {
  constexpr OptionalDType() = default;
  constexpr OptionalDType(DType dtype) : value(dtype), given(true) {}
  constexpr operator DType() const { return value; }
  DType value = kFloat32;
  bool given = false;
};

// Placements, dtype and so on of a new tensor. Without a mesh: one device (number 0). Without placements: Replicate.
struct TensorOptions {
  DeviceMesh mesh = {};
  Placements placements = {};
  std::vector<std::string> order = {};  // axes by name, outermost first, where several shard one dim
  OptionalDType dtype = {};
  bool requires_grad = false;
  Layout layout(int64_t ndim, const Where& where = Where::current()) const;
};

struct RedistributeOptions {
  std::vector<std::string> order = {};  // axes by name, outermost first, where several shard one dim
  // Also casts. First when that moves fewer bytes, afterwards otherwise; what is pending is reduced in the wider type.
  OptionalDType dtype = {};
};
enum class ByDictMode : uint8_t { kRaise, kKeep, kReplicate };

class Tensor {
 public:
  Tensor() = default;
  Tensor(IntrusivePtr<Value> value, IntrusivePtr<AutogradMeta> autograd)
      : value_(std::move(value)), autograd_(std::move(autograd)) {}

  bool defined() const { return static_cast<bool>(value_); }
  const Shape& shape() const { return meta().global_shape; }
  int64_t ndim() const { return shape().ndim(); }
  int64_t size(int64_t dim) const;
  int64_t numel() const { return shape().num_elements(); }
  DType dtype() const { return meta().dtype; }
  const DeviceMesh& mesh() const { return meta().layout.mesh(); }
  const Placements& placements() const { return meta().layout.placements(); }
  const Layout& layout() const { return meta().layout; }
  const TensorMeta& meta() const {  // throws UserError when undefined
    if (!value_) throw_undefined();
    return *value_->meta();
  }
  const IntrusivePtr<Value>& value() const { return value_; }
  const IntrusivePtr<AutogradMeta>& autograd() const { return autograd_; }
  std::string str() const;  // metadata only; never reads

  // --- reads: the only calls that wait
  // ---------------------------------------------------------------------------------------
  TensorFuture to_host_async(Where where = Where::current()) const;
  HostTensor to_host(Where where = Where::current()) const;
  HostTensor to_host_local(int64_t device, Where where = Where::current()) const;  // that device's part, for debugging
  // Value of a tensor with one element.
  template <class T>
  T item(Where where = Where::current()) const {
    return item_host(where).template element<T>(0);
  }

  // --- autograd
  // --------------------------------------------------------------------------------------------------------------
  bool requires_grad() const { return static_cast<bool>(autograd_); }
  bool is_leaf() const;
  Tensor& requires_grad_(bool on = true);
  Tensor detach() const;
  // Gradient of a leaf after backward, with the tensor's own placements; undefined before.
  Tensor grad(Where where = Where::current()) const;
  void zero_grad();
  void backward(Where where = Where::current()) const;  // of a scalar
  void backward(const Tensor& gradient, Where where = Where::current()) const;
  void retain_grad() const;

  // --- redistribution
  // ----------------------------------------------------------------------------------------------------------
  Tensor redistribute(const Placements& placements, Where where = Where::current()) const;
  Tensor redistribute(const Placements& placements, const RedistributeOptions& options,
                      Where where = Where::current()) const;
  Tensor redistribute(const DeviceMesh& mesh, const Placements& placements, const RedistributeOptions& options = {},
                      Where where = Where::current()) const;
  Tensor redistribute(const Layout& layout, Where where = Where::current()) const;
  Tensor redistribute_like(const Tensor& other, Where where = Where::current()) const;
  Tensor redistribute_by_dict(const std::map<std::string, Placement>& placements, ByDictMode mode = ByDictMode::kRaise,
                              Where where = Where::current()) const;
  Tensor full_tensor(Where where = Where::current()) const;
  Tensor reduced(Where where = Where::current()) const;  // what is pending, reduced: every Partial axis Replicate

  // --- methods of operators (defined in ops/)
  // -------------------------------------------------------------------------------------
  Tensor to(DType dtype, Where where = Where::current()) const;
  Tensor exp(Where where = Where::current()) const;
  Tensor log(Where where = Where::current()) const;
  Tensor sqrt(Where where = Where::current()) const;
  Tensor rsqrt(Where where = Where::current()) const;
  Tensor tanh(Where where = Where::current()) const;
  Tensor sigmoid(Where where = Where::current()) const;
  Tensor relu(Where where = Where::current()) const;
  Tensor abs(Where where = Where::current()) const;
  Tensor neg(Where where = Where::current()) const;
  Tensor pow(double exponent, Where where = Where::current()) const;
  Tensor clamp(std::optional<double> min, std::optional<double> max, Where where = Where::current()) const;
  Tensor matmul(const Tensor& other, Where where = Where::current()) const;
  Tensor sum(Where where = Where::current()) const;
  Tensor sum(const std::vector<int64_t>& dims, bool keepdim = false, Where where = Where::current()) const;
  Tensor mean(Where where = Where::current()) const;
  Tensor mean(const std::vector<int64_t>& dims, bool keepdim = false, Where where = Where::current()) const;
  Tensor max(Where where = Where::current()) const;
  std::pair<Tensor, Tensor> max(int64_t dim, bool keepdim = false, Where where = Where::current()) const;
  Tensor argmax(std::optional<int64_t> dim = {}, bool keepdim = false, Where where = Where::current()) const;
  Tensor softmax(int64_t dim, Where where = Where::current()) const;
  Tensor log_softmax(int64_t dim, Where where = Where::current()) const;
  Tensor reshape(const std::vector<int64_t>& shape, Where where = Where::current()) const;  // one size may be -1
  Tensor view(const std::vector<int64_t>& shape, Where where = Where::current()) const;
  Tensor flatten(int64_t start_dim = 0, int64_t end_dim = -1, Where where = Where::current()) const;
  Tensor transpose(int64_t dim0, int64_t dim1, Where where = Where::current()) const;
  Tensor t(Where where = Where::current()) const;
  Tensor permute(const std::vector<int64_t>& dims, Where where = Where::current()) const;
  Tensor unsqueeze(int64_t dim, Where where = Where::current()) const;
  Tensor squeeze(std::optional<int64_t> dim = {}, Where where = Where::current()) const;
  Tensor expand(const std::vector<int64_t>& shape, Where where = Where::current()) const;
  Tensor slice(int64_t dim, int64_t start, int64_t end, Where where = Where::current()) const;
  Tensor select(int64_t dim, int64_t index, Where where = Where::current()) const;
  std::vector<Tensor> chunk(int64_t chunks, int64_t dim = 0, Where where = Where::current()) const;

 private:
  [[noreturn]] static void throw_undefined();
  HostTensor item_host(Where where) const;  // checks that there is one element
  IntrusivePtr<Value> value_;
  IntrusivePtr<AutogradMeta> autograd_;  // null: needs no gradient
};
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

// A Tensor argument of an overloaded operator that remembers the place of the call (operators have no defaulted
// parameters).
struct TensorArg {
  TensorArg(const Tensor& t, Where w = Where::current()) : tensor(t), where(w) {}
  const Tensor& tensor;
  Where where;
};

}  // namespace dtorch
