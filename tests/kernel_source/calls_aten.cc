// What calls.h promises, with LibTorch.
#include "tests/kernel_source/calls.h"

#include <cstring>
#include <random>

#include "dtorch/kernel.h"
#include "mesh/device_mesh.h"
#include "mesh/layout.h"
#include "ops/def/cast_attrs.h"
#include "ops/math/operators.h"
#include "ops/math/where_attrs.h"
#include "ops/operator_list.h"

namespace dtorch::test {
namespace {

using math::BinaryAttrs;

constexpr DType kAll[] = {kBool, kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64};

const Layout& on_one_device() {
  static const Layout layout = Layout::replicated(init_device_mesh("cpu", {1}));
  return layout;
}

class Collector {
 public:
  explicit Collector(int64_t num_elements) : num_elements_(num_elements) {}
  void add(const char* op, const std::string& attributes, std::vector<OperandOf> inputs,
           std::vector<Scalar> scalars = {}) {
    ElementwiseCall& call = calls_.emplace_back();
    if (!make_call(call, op, attributes, std::move(inputs), std::move(scalars), num_elements_)) calls_.pop_back();
  }
  std::deque<ElementwiseCall> take() { return std::move(calls_); }

 private:
  const int64_t num_elements_;
  std::deque<ElementwiseCall> calls_;
};

// One dtype stands for all where operands differ in form only, so that compiling takes seconds.
constexpr bool is_typical(DType dtype) { return dtype == kFloat32 || dtype == kInt32; }

void add_binary(Collector& all, const char* op, DType dtype) {
  const std::string none = encode_attributes(BinaryAttrs{});
  all.add(op, none, {{dtype}, {dtype}});
  if (!is_typical(dtype)) return;
  all.add(op, none, {{dtype}, {dtype, true}});
  all.add(op, none, {{dtype, true}, {dtype}});
  all.add(op, none, {{dtype}, {kFloat16}});
}
// A narrow float and a number: LibTorch's loops on the CPU round some numbers to the tensor's dtype and others not, its
// GPU kernels and ours none. This one needs no rounding.
Scalar number_for(DType dtype) { return Scalar::of(dtype == kFloat16 || dtype == kBFloat16 ? 1.25 : 1.3); }
void add_with_number(Collector& all, const char* op, DType dtype, bool is_comparison = false) {
  all.add(op, encode_attributes(BinaryAttrs{math::kFloating, false}), {{dtype}}, {number_for(dtype)});
  if (!is_typical(dtype)) return;
  all.add(op, encode_attributes(BinaryAttrs{math::kInteger, false}), {{dtype}}, {Scalar::of_int(3)});
  if (is_comparison) return;  // the tensor is always first
  all.add(op, encode_attributes(BinaryAttrs{math::kFloating, true}), {{dtype}}, {number_for(dtype)});
  all.add(op, encode_attributes(BinaryAttrs{math::kInteger, true}), {{dtype}}, {Scalar::of_int(3)});
}
void add_where(Collector& all, DType dtype) {
  using math::WhereAttrs;
  all.add("where", encode_attributes(WhereAttrs{}), {{kBool}, {dtype}, {dtype}});
  if (!is_typical(dtype)) return;
  all.add("where", encode_attributes(WhereAttrs{}), {{kBool}, {dtype}, {dtype, true}});
  all.add("where", encode_attributes(WhereAttrs{math::kInteger, false, false}), {{kBool}, {dtype}},
          {Scalar::of_int(7)});
  all.add("where", encode_attributes(WhereAttrs{math::kFloating, true, false}), {{kBool}, {dtype}}, {Scalar::of(2.5)});
}

}  // namespace

bool make_call(ElementwiseCall& call, const char* op, const std::string& attributes, std::vector<OperandOf> inputs,
               std::vector<Scalar> scalars, int64_t num_elements) {
  call.def = OperatorRegistry::global().find(op);
  DTORCH_CHECK(call.def != nullptr, op);
  call.inputs = std::move(inputs);
  call.scalars = std::move(scalars);
  call.what = op;
  for (const OperandOf& input : call.inputs) {
    const Shape shape = input.is_single ? Shape{1} : Shape{num_elements};
    call.spec.inputs.push_back(intern_meta(shape, input.dtype, on_one_device()));
    call.local.input_boxes.push_back(whole(shape));
    call.what += std::string(" ") + name_of(input.dtype) + (input.is_single ? " (one)" : "");
  }
  call.spec.op = call.def->index;
  call.spec.attributes = attributes;
  call.local.op = call.def->index;
  call.local.attributes = call.def->attributes.decode(attributes);
  try {
    const std::vector<OutputMeta> outputs = call.def->infer({op, call.spec.inputs, call.local.attributes.get()});
    for (const OutputMeta& output : outputs) {
      call.spec.outputs.push_back(intern_meta(output.global_shape, output.dtype, on_one_device()));
      call.local.output_boxes.push_back(whole(output.global_shape));
    }
  } catch (const UserError&) {
    return false;
  }
  call.local.spec = &call.spec;
  if (!call.scalars.empty()) call.what += " number";
  call.what += std::string(" -> ") + name_of(call.spec.outputs[0]->dtype);
  return true;
}

std::deque<ElementwiseCall> all_elementwise_calls(int64_t num_elements) {
  Collector all(num_elements);
  const std::string none = encode_attributes(NoAttrs{});
  const OperatorRegistry& registry = OperatorRegistry::global();
  for (size_t i = 0; i < registry.size(); ++i) {
    const OperatorDef& def = registry.at(static_cast<uint16_t>(i));
    if (!def.elementwise) continue;
    const std::string name = def.name, signature = def.signature;
    for (DType dtype : kAll) {
      if (name == "where") {
        add_where(all, dtype);
      } else if (name == "to") {
        for (DType target : kAll) all.add(def.name, encode_attributes(CastAttrs{target}), {{dtype}});
      } else if (name.ends_with("_gradient")) {
        all.add(def.name, none, {{dtype}, {dtype}});
      } else if (name.ends_with("_number")) {
        add_with_number(all, def.name, dtype);
      } else if (signature.find("(x)") != std::string::npos) {
        all.add(def.name, none, {{dtype}});
      } else {
        add_binary(all, def.name, dtype);
        if (name == "add" || name == "sub") add_with_number(all, def.name, dtype);
        if (name == "eq" || name == "lt") add_with_number(all, def.name, dtype, true);
      }
    }
  }
  return all.take();
}

FusedProgram program_of(const ElementwiseCall& call, int64_t num_elements) {
  FusedProgram program;
  program.num_elements = num_elements;
  FusedProgram::Member member{
      .def = call.def, .local = &call.local, .inputs = {}, .num_scalars = static_cast<uint32_t>(call.scalars.size())};
  for (const OperandOf& input : call.inputs) {
    member.inputs.push_back(program.num_inputs());
    program.inputs.push_back({input.dtype, input.is_single});
  }
  program.outputs = {program.num_inputs()};
  program.members.push_back(std::move(member));
  return program;
}

std::vector<std::byte> values_of(DType dtype, int64_t num_elements, uint32_t seed) {
  std::vector<std::byte> bytes(static_cast<size_t>(num_elements * size_of(dtype)));
  std::mt19937 random(seed);
  visit_dtype(dtype, [&]<class T>() {
    for (int64_t i = 0; i < num_elements; ++i) {
      const int32_t small = static_cast<int32_t>(random() % 9) - 4;  // values that meet each other
      const float any = static_cast<float>(static_cast<double>(random()) / 4294967296.0 * 6 - 3);
      T value{};
      if constexpr (std::is_same_v<T, bool>) {
        value = small > 0;
      } else if constexpr (std::is_integral_v<T>) {
        value = static_cast<T>(i % 3 == 0 ? static_cast<int64_t>(random()) : small);
      } else {
        value = static_cast<T>(i % 4 == 0 ? static_cast<float>(small) : any);
      }
      std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof value, &value, sizeof value);
    }
  });
  return bytes;
}

std::vector<std::byte> run_on_cpu(const ElementwiseCall& call, const std::vector<std::vector<std::byte>>& inputs,
                                  int64_t num_elements) {
  std::vector<NativeTensor> operands;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Shape shape = call.inputs[i].is_single ? Shape{1} : Shape{num_elements};
    NativeTensor operand = NativeTensor::empty(shape, call.inputs[i].dtype);
    std::memcpy(operand.data(), inputs[i].data(), inputs[i].size());
    operands.push_back(std::move(operand));
  }
  const std::vector<OperandId> ids(operands.size(), 0);
  NativeTensor output;
  KernelContext context(call.local, operands, {&output, 1}, call.scalars, ids, nullptr);
  call.def->kernel(context);
  output = output.contiguous();
  std::vector<std::byte> result(static_cast<size_t>(output.num_bytes()));
  std::memcpy(result.data(), output.data(), result.size());
  return result;
}

}  // namespace dtorch::test
