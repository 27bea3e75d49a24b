// Meshes: making, naming, cutting and merging them, and every mistake.
#include "mesh/device_mesh.h"

#include <gtest/gtest.h>

#include "mesh/layout.h"

namespace dtorch {
namespace {

template <class E, class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(DeviceMesh, NumbersDevicesRowMajor) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 3}, {"dp", "tp"});
  EXPECT_EQ(mesh.num_devices(), 6);
  EXPECT_EQ(mesh.coordinate_of_index(4), (Shape{1, 1}));
  EXPECT_EQ(mesh.index_of_coordinate({1, 1}), 4);
  EXPECT_EQ(mesh.size("tp"), 3);
  EXPECT_EQ(mesh.axis("tp"), 1);
  EXPECT_EQ(mesh.str(), "cpu mesh (dp=2, tp=3) of devices [[0, 1, 2], [3, 4, 5]]");
}

TEST(DeviceMesh, FindsDevicesInAnyOrder) {
  const DeviceMesh mesh("cpu", {4}, {7, 8, 3, 10});
  EXPECT_EQ(mesh.index_of(7), 0);
  EXPECT_EQ(mesh.index_of(3), 2);
  EXPECT_EQ(mesh.index_of(10), 3);
  EXPECT_EQ(mesh.index_of(9), -1);
  EXPECT_EQ(mesh.index_of(0), -1);
}

TEST(DeviceMesh, IsEqualWhenKindShapeNumbersAndNamesAre) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
  EXPECT_EQ(mesh, DeviceMesh("cpu", {2, 2}, {0, 1, 2, 3}, {"dp", "tp"}));
  EXPECT_NE(mesh, init_device_mesh("cuda", {2, 2}, {"dp", "tp"}));
  EXPECT_NE(mesh, init_device_mesh("cpu", {2, 2}, {"dp", "cp"}));
  EXPECT_NE(mesh, init_device_mesh("cpu", {2, 2}));
  EXPECT_NE(mesh, init_device_mesh("cpu", {4, 1}, {"dp", "tp"}));
  EXPECT_NE(mesh, DeviceMesh("cpu", {2, 2}, {0, 1, 3, 2}, {"dp", "tp"}));
  EXPECT_FALSE(DeviceMesh());
}

TEST(DeviceMesh, SlicesAndUnbindsAnAxis) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 2, 2}, {"pp", "dp", "tp"});
  EXPECT_EQ(mesh.slice("pp", 1), DeviceMesh("cpu", {2, 2}, {4, 5, 6, 7}, {"dp", "tp"}));
  EXPECT_EQ(mesh.slice("dp", 0), DeviceMesh("cpu", {2, 2}, {0, 1, 4, 5}, {"pp", "tp"}));
  EXPECT_EQ(mesh.unbind("tp").at(1), DeviceMesh("cpu", {2, 2}, {1, 3, 5, 7}, {"pp", "dp"}));
  EXPECT_EQ(init_device_mesh("cpu", {3}, {"pp"}).slice("pp", 2), DeviceMesh("cpu", {}, {2}));
  EXPECT_EQ(init_device_mesh("cpu", {2, 2}).slice("axis 0", 1), DeviceMesh("cpu", {2}, {2, 3}));
}

TEST(DeviceMesh, NamesOneAxisOnlyWhenTheOthersHaveSizeOne) {
  const DeviceMesh mesh = init_device_mesh("cpu", {1, 4}, {"dp", "tp"});
  EXPECT_EQ(mesh["tp"], init_device_mesh("cpu", {4}, {"tp"}));
  const std::string message = message_of<MeshError>([] { init_device_mesh("cpu", {2, 2}, {"dp", "tp"})["tp"]; });
  EXPECT_TRUE(has(message, "slice")) << message;
  EXPECT_TRUE(has(message, "unbind")) << message;
  EXPECT_TRUE(has(message, "dp=2")) << message;
}

TEST(DeviceMesh, FlattensNeighboursAndSplitsBack) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 3, 2}, {"dp", "cp", "tp"});
  const DeviceMesh flat = mesh.flatten({"dp", "cp"}, "dp_cp");
  EXPECT_EQ(flat, init_device_mesh("cpu", {6, 2}, {"dp_cp", "tp"}));
  EXPECT_EQ(flat.split("dp_cp", {2, 3}, {"dp", "cp"}), mesh);
  EXPECT_EQ(mesh.flatten({"dp", "cp", "tp"}, "all"), init_device_mesh("cpu", {12}, {"all"}));
  EXPECT_THROW(mesh.flatten({"dp", "tp"}, "x"), MeshError);
  EXPECT_THROW(mesh.flatten({"cp", "dp"}, "x"), MeshError);
  EXPECT_THROW(mesh.flatten({}, "x"), MeshError);
  EXPECT_THROW(mesh.flatten({"dp", "cp"}, "tp"), MeshError);
  EXPECT_THROW(mesh.split("cp", {2, 2}, {"a", "b"}), MeshError);
  EXPECT_THROW(mesh.split("cp", {3}, {}), MeshError);
  EXPECT_THROW(mesh.split("cp", {3, 1}, {"tp", "b"}), MeshError);
  EXPECT_THROW(mesh.split("cp", {3, 1, 1, 1, 1}, {"a", "b", "c", "d", "e"}), MeshError);
  EXPECT_THROW(mesh.split("cp", {-1, -3}, {"a", "b"}), MeshError);
  EXPECT_EQ(init_device_mesh("cpu", {6}).split("axis 0", {2, 3}, {}), init_device_mesh("cpu", {2, 3}));
}

TEST(DeviceMesh, RefusesWrongDeviceLists) {
  EXPECT_TRUE(has(message_of<MeshError>([] { DeviceMesh("cpu", {2}, {0, 0}); }), "device number 0 stands twice"));
  EXPECT_THROW(DeviceMesh("cpu", {2}, {0, -1}), MeshError);
  EXPECT_THROW(DeviceMesh("cpu", {2}, {0, 1, 2}), MeshError);
  EXPECT_THROW(DeviceMesh("cpu", {0}, {}), MeshError);
  EXPECT_THROW(DeviceMesh("cpu", {-1, -2}, {0, 1}), MeshError);
  EXPECT_THROW(DeviceMesh("tpu", {1}, {0}), MeshError);
  EXPECT_THROW(init_device_mesh("cpu", {1, 1, 1, 1, 1, 1, 1}), MeshError);
  EXPECT_THROW(init_device_mesh("cpu", {int64_t{1} << 40, int64_t{1} << 40}), MeshError);
}

TEST(DeviceMesh, RefusesWrongNames) {
  EXPECT_THROW(init_device_mesh("cpu", {2, 2}, {"dp"}), MeshError);
  EXPECT_THROW(init_device_mesh("cpu", {2, 2}, {"dp", "dp"}), MeshError);
  EXPECT_THROW(init_device_mesh("cpu", {2, 2}, {"dp", ""}), MeshError);
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
  EXPECT_TRUE(has(message_of<KeyError>([&] { mesh.axis("cp"); }), "{dp, tp}"));
  EXPECT_FALSE(mesh.has_axis("cp"));
  EXPECT_THROW(mesh.slice("cp", 0), KeyError);
  EXPECT_THROW(mesh.slice("dp", 2), MeshError);
  EXPECT_THROW(mesh.slice("dp", -1), MeshError);
}

TEST(DeviceMesh, PrintsDevicesAsRows) {
  EXPECT_EQ(init_device_mesh("cpu", {3}).str(), "cpu mesh (3) of devices [0, 1, 2]");
  EXPECT_EQ(DeviceMesh("cpu", {}, {7}).str(), "cpu mesh () of devices [7]");
  EXPECT_EQ(DeviceMesh("cpu", {2, 1, 2}, {4, 9, 1, 10}, {"pp", "dp", "tp"}).str(),
            "cpu mesh (pp=2, dp=1, tp=2) of devices [[[4, 9]], [[1, 10]]]");
  EXPECT_EQ(init_device_mesh("cpu", {4, 8}).str(),
            "cpu mesh (4, 8) of devices [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, ..., 31]");
}

TEST(DeviceMesh, DescribesItselfAsATable) {
  EXPECT_EQ(DeviceMesh("cpu", {2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 17}, {"pp", "dp", "tp"}).describe(),
            "cpu mesh (pp=2, dp=2, tp=2)\n"
            "pp=0:\n"
            "        tp=0  tp=1\n"
            "  dp=0     0     1\n"
            "  dp=1     2     3\n"
            "pp=1:\n"
            "        tp=0  tp=1\n"
            "  dp=0     4     5\n"
            "  dp=1     6    17\n");
  EXPECT_EQ(init_device_mesh("cpu", {2}, {"dp"}).describe(),
            "cpu mesh (dp=2)\n"
            "    dp=0  dp=1\n"
            "       0     1\n");
  EXPECT_EQ(DeviceMesh("cpu", {}, {7}).describe(), "cpu mesh ()\n  7\n");
}

TEST(DeviceMesh, SharesWhatEqualMeshesAre) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 4}, {"dp", "tp"});
  for (int i = 0; i < 500; ++i) {
    EXPECT_EQ(init_device_mesh("cpu", {8}, {"all"}).split("all", {2, 4}, {"dp", "tp"}).data(), mesh.data());
  }
}

TEST(DeviceMesh, LabelsAxesWithoutNames) {
  EXPECT_EQ(init_device_mesh("cpu", {2, 2}).axis_label(1), "axis 1");
  EXPECT_EQ(init_device_mesh("cpu", {2, 2}, {"dp", "tp"}).axis_label(1), "tp");
}

// The line of the call that was wrong, whatever was called for it.
TEST(DeviceMesh, ErrorsNameTheLineOfTheCall) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
  const auto expect_line = [](const std::string& message, uint32_t line) {
    EXPECT_TRUE(has(message, "called at " + std::string(__FILE__) + ":" + std::to_string(line))) << message;
  };
  expect_line(message_of<MeshError>([] { init_device_mesh("cpu", {0}); }), __LINE__);
  expect_line(message_of<MeshError>([] { DeviceMesh("cpu", {1}, {-1}); }), __LINE__);
  expect_line(message_of<KeyError>([&] { mesh.axis("cp"); }), __LINE__);
  expect_line(message_of<KeyError>([&] { mesh.size("cp"); }), __LINE__);
  expect_line(message_of<KeyError>([&] { mesh["cp"]; }), __LINE__);
  expect_line(message_of<KeyError>([&] { mesh.unbind("cp"); }), __LINE__);
  expect_line(message_of<MeshError>([&] { mesh.slice("dp", 2); }), __LINE__);
  expect_line(message_of<MeshError>([&] { mesh.flatten({"tp", "dp"}, "all"); }), __LINE__);
  expect_line(message_of<MeshError>([&] { mesh.split("dp", {2, 1}, {"tp", "a"}); }), __LINE__);
  expect_line(message_of<MeshError>([&] { Layout(mesh, {Shard(0)}, 2); }), __LINE__);
  expect_line(message_of<ShapeError>([&] { Layout(mesh, {Shard(0), Shard(2)}, 2); }), __LINE__);
  expect_line(message_of<KeyError>([&] { Layout(mesh, {Shard(0), Shard(0)}, 2, {"cp"}); }), __LINE__);
}

}  // namespace
}  // namespace dtorch
