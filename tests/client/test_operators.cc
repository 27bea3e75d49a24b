#include "tests/client/test_operators.h"

#include "ops/def/cast_attrs.h"

namespace dtorch::testing {

int num_inferences = 0;

namespace {

struct MakeAttrs {
  Shape shape;
  DType dtype = kFloat32;
  template <class V>
  void fields(V& v) {
    v("shape", shape);
    v("dtype", dtype);
  }
};

std::vector<OutputMeta> infer_make(const InferContext& context) {
  ++num_inferences;
  const auto& attributes = context.attributes<MakeAttrs>();
  return {{attributes.shape, attributes.dtype}};
}
std::vector<OutputMeta> infer_none(const InferContext&) { return {}; }
std::vector<OutputMeta> infer_same(const InferContext& context) {
  ++num_inferences;
  return {{context.shape(0), context.dtype(0)}};
}
std::vector<OutputMeta> infer_bool(const InferContext& context) { return {{context.shape(0), kBool}}; }
std::vector<OutputMeta> infer_two(const InferContext& context) {
  return {{context.shape(0), context.dtype(0)}, {context.shape(0), kInt64}};
}
std::vector<OutputMeta> infer_broadcast(const InferContext& context) {
  ++num_inferences;
  return {{broadcast_shapes(context.shape(0), context.shape(1), context.op), context.dtype(0)}};
}
std::vector<OutputMeta> infer_matmul(const InferContext& context) {
  if (context.shape(0)[1] != context.shape(1)[0]) {
    throw ShapeError(std::string("[") + context.op + "] inner sizes " + std::to_string(context.shape(0)[1]) + " and " +
                     std::to_string(context.shape(1)[0]) + " differ");
  }
  return {{{context.shape(0)[0], context.shape(1)[1]}, context.dtype(0)}};
}
std::vector<OutputMeta> infer_flat(const InferContext& context) {
  return {{{context.shape(0).num_elements()}, context.dtype(0)}};
}
std::vector<OutputMeta> infer_scalar(const InferContext& context) { return {{{}, context.dtype(0)}}; }

Rule rule_add(const InferContext& context, std::span<const OutputMeta> outputs) {
  const Shape shapes[] = {context.shape(0), context.shape(1)};
  return elementwise_rule(shapes, outputs[0].global_shape, Linear::kInAll);
}
template <int kOutputs>
Rule rule_unary(const InferContext& context, std::span<const OutputMeta> outputs) {
  const Shape shapes[] = {context.shape(0)};
  return elementwise_rule(shapes, outputs[0].global_shape, Linear::kNo, kOutputs);
}
std::vector<OutputMeta> infer_cast(const InferContext& context) {
  return {{context.shape(0), context.attributes<CastAttrs>().dtype}};
}
Rule rule_cast(const InferContext& context, std::span<const OutputMeta> outputs) {
  const Shape shapes[] = {context.shape(0)};
  const bool linear = is_floating(context.dtype(0)) && is_floating(outputs[0].dtype);
  return elementwise_rule(shapes, outputs[0].global_shape, linear ? Linear::kInAll : Linear::kNo);
}
Rule rule_matmul(const InferContext&, std::span<const OutputMeta>) { return einsum_rule("mk,kn->mn"); }
std::optional<std::vector<Layout>> layouts_flat(const InferContext& context, std::span<const OutputMeta> outputs,
                                                std::string* reason) {
  std::optional<Layout> layout = view_layout(*context.inputs[0], outputs[0].global_shape, reason);
  if (!layout) return std::nullopt;
  return std::vector<Layout>{*layout};
}

std::vector<Tensor> pass_on(const GradientContext& context) {
  return std::vector<Tensor>(context.num_inputs(), context.grad_output(0));
}

OperatorDef redistribute_test_op = {.name = "redistribute",
                                    .infer = infer_same,
                                    .gradient = pass_on,
                                    .lowering = Lowering::kTransfer,
                                    .saved_inputs = 0};
OperatorDef cast_test_op = {.name = "to",
                            .signature = "to(x, dtype) -> Tensor",
                            .attributes = attribute_codec<CastAttrs>(),
                            .infer = infer_cast,
                            .rule = rule_cast,
                            .gradient = pass_on,
                            .saved_inputs = 0};
OperatorDef read_test_op = {.name = "read", .infer = infer_none, .klass = OperatorClass::kRead};

}  // namespace

OperatorDef make_op = {.name = "make", .attributes = attribute_codec<MakeAttrs>(), .infer = infer_make};
OperatorDef add_op = {
    .name = "add", .infer = infer_broadcast, .rule = rule_add, .gradient = pass_on, .saved_inputs = 0};
OperatorDef relu_op = {.name = "relu",
                       .attributes = attribute_codec<NumberAttrs>(),
                       .infer = infer_same,
                       .rule = rule_unary<1>,
                       .gradient = pass_on,
                       .saved_inputs = 0,
                       .saved_outputs = 1};
OperatorDef matmul_op = {.name = "matmul", .infer = infer_matmul, .rule = rule_matmul, .gradient = pass_on};
OperatorDef flatten_op = {.name = "flatten", .infer = infer_flat, .layouts = layouts_flat};
OperatorDef split_op = {
    .name = "split", .infer = infer_two, .rule = rule_unary<2>, .gradient = pass_on, .saved_inputs = 0};
OperatorDef compare_op = {.name = "compare", .infer = infer_bool, .rule = rule_unary<1>};
// The user knows it as add.
OperatorDef add_number_op = {.name = "add_number",
                             .signature = "add(a, number) -> Tensor",
                             .infer = infer_same,
                             .rule = rule_unary<1>,
                             .gradient = pass_on,
                             .saved_inputs = 0};
// Any number of inputs on any meshes, to one scalar.
OperatorDef many_op = {.name = "many", .infer = infer_scalar};

void register_test_operators() {
  static const bool once = [] {
    for (OperatorDef* def : {&make_op, &add_op, &relu_op, &matmul_op, &flatten_op, &split_op, &compare_op, &many_op,
                             &redistribute_test_op, &read_test_op, &cast_test_op, &add_number_op}) {
      OperatorRegistry::global().add(*def);
    }
    return true;
  }();
  (void)once;
}

Tensor make(const Shape& shape, const TensorOptions& options, Where where) {
  const Layout layout = options.layout(shape.ndim());
  Tensor tensor = record(make_op, MakeAttrs{shape, options.dtype}, {}, where, {.output_layouts = {&layout, 1}});
  if (options.requires_grad) tensor.requires_grad_();
  return tensor;
}
Tensor add(const Tensor& a, const Tensor& b, Where where) { return record(add_op, NoAttrs{}, {&a, &b}, where); }
Tensor relu(const Tensor& x, Where where) { return record(relu_op, NumberAttrs{}, {&x}, where); }
Tensor matmul(const Tensor& a, const Tensor& b, Where where) { return record(matmul_op, NoAttrs{}, {&a, &b}, where); }
Tensor flatten(const Tensor& x, Where where) { return record(flatten_op, NoAttrs{}, {&x}, where); }

ClientTest::ClientTest() { register_test_operators(); }

ClientTest::~ClientTest() {
  runtime_->release();
  try {
    client_.close();
  } catch (...) {
    // What a test provokes and looks at itself.
  }
  EXPECT_EQ(runtime_->violations(), std::vector<std::string>());
}

void ClientTest::wait() { client_.synchronize(); }

}  // namespace dtorch::testing
