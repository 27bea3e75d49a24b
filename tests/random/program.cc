#include "tests/random/program.h"

#include <algorithm>

namespace dtorch::test {
namespace {

std::string name_of_value(int value) { return "v" + std::to_string(value); }

std::string name_of_mesh(const DeviceMesh& mesh, const std::vector<DeviceMesh>& meshes) {
  return "m" + std::to_string(std::ranges::find(meshes, mesh) - meshes.begin());
}

std::string braces(const Shape& shape) {
  std::string text = "{";
  for (int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "}";
}

std::string mesh_line(const DeviceMesh& mesh, const std::string& name) {
  Shape devices(mesh.devices().begin(), mesh.devices().end());
  std::string line = "const DeviceMesh " + name + "(\"cpu\", " + braces(mesh.shape()) + ", " + braces(devices);
  for (size_t i = 0; i < mesh.axis_names().size(); ++i)
    line += (i == 0 ? ", {\"" : ", \"") + mesh.axis_names()[i] + (i + 1 == mesh.axis_names().size() ? "\"}" : "\"");
  return line + ");\n";
}

std::string results(const std::vector<int>& outputs) {
  if (outputs.size() == 1) return "Tensor " + name_of_value(outputs[0]) + " = ";
  std::string text = "auto [";
  for (size_t i = 0; i < outputs.size(); ++i) text += (i > 0 ? ", " : "") + name_of_value(outputs[i]);
  return text + "] = ";
}

std::string call_text(const Step& step) {
  std::string text;
  for (size_t at = 0; at < step.text.size(); ++at) {
    if (step.text[at] != '$') {
      text += step.text[at];
      continue;
    }
    size_t end = at + 1;
    while (end < step.text.size() && std::isdigit(static_cast<unsigned char>(step.text[end])) != 0) ++end;
    text += name_of_value(step.inputs.at(std::stoul(step.text.substr(at + 1, end - at - 1))));
    at = end - 1;
  }
  return text;
}

std::string order_text(const Step& step) { return step.inner_first ? ", inner axis first" : ""; }

std::string line_of(const Step& step, const std::vector<DeviceMesh>& meshes) {
  std::string line = results(step.outputs);
  switch (step.kind) {
    case Step::Kind::kLeaf:
      line += std::string("leaf(") + name_of(step.value.dtype()) + ", " + braces(step.value.shape()) + ", " +
              name_of_mesh(step.mesh, meshes) + ", " + step.placements.str() + order_text(step) + ")" +
              (step.requires_grad ? ".requires_grad_()" : "");
      break;
    case Step::Kind::kRedistribute:
      line += name_of_value(step.inputs[0]) + ".redistribute(" + name_of_mesh(step.mesh, meshes) + ", " +
              step.placements.str() + order_text(step) + ")";
      break;
    case Step::Kind::kCall:
      line += call_text(step);
      break;
  }
  return line + ";\n";
}

}  // namespace

Layout Step::layout(int64_t ndim) const {
  const Layout plain(mesh, placements, ndim);
  if (!inner_first || plain.shard_order().size() < 2) return plain;
  return Layout(mesh, placements, ndim, AxisList{1, 0});
}

int64_t Program::num_operators() const {
  return std::ranges::count_if(steps, [](const Step& step) { return step.kind != Step::Kind::kLeaf; });
}

std::string Program::str() const {
  std::vector<DeviceMesh> meshes;
  std::string text = "// program " + std::to_string(number) + "\n";
  for (const Step& step : steps) {
    if (step.mesh && std::ranges::find(meshes, step.mesh) == meshes.end()) meshes.push_back(step.mesh);
  }
  for (const DeviceMesh& mesh : meshes) text += mesh_line(mesh, name_of_mesh(mesh, meshes));
  for (const Step& step : steps) text += line_of(step, meshes);
  return text + (gradients ? "// gradients of a weighted sum of what nobody reads\n" : "");
}

int step_of(const Program& program, int value) {
  for (size_t i = 0; i < program.steps.size(); ++i) {
    if (std::ranges::find(program.steps[i].outputs, value) != program.steps[i].outputs.end())
      return static_cast<int>(i);
  }
  return -1;
}

}  // namespace dtorch::test
