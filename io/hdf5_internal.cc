#include "io/hdf5_internal.h"

#include <algorithm>

namespace dtorch::io::hdf5 {
namespace {

constexpr const char* kDTypeAttribute = "dtorch_dtype";

}  // namespace

std::mutex& lock() {
  static std::mutex lock;
  return lock;
}

std::string reason() {
  std::string reason;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
        auto* text = static_cast<std::string*>(out);
        if (text->empty() && error->desc) *text = error->desc;
        return 0;
      },
      &reason);
  return reason.empty() ? "unknown reason" : reason;
}

void quiet() { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

void need(herr_t code, const std::string& what) {
  if (code < 0) throw RuntimeFault(what + ": " + reason());
}

hid_t native_type(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return H5T_NATIVE_UINT8;
    case DType::kUInt8:
      return H5T_NATIVE_UINT8;
    case DType::kInt8:
      return H5T_NATIVE_INT8;
    case DType::kInt16:
      return H5T_NATIVE_INT16;
    case DType::kInt32:
      return H5T_NATIVE_INT32;
    case DType::kInt64:
      return H5T_NATIVE_INT64;
    case DType::kFloat16:
      return H5T_NATIVE_UINT16;
    case DType::kBFloat16:
      return H5T_NATIVE_UINT16;
    case DType::kFloat32:
      return H5T_NATIVE_FLOAT;
    case DType::kFloat64:
      break;
  }
  return H5T_NATIVE_DOUBLE;
}

void write_string(hid_t object, const std::string& name, const std::string& value, const std::string& where) {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose, where);
  need(H5Tset_size(type, std::max<size_t>(value.size(), 1)), where);
  Handle space(H5Screate(H5S_SCALAR), H5Sclose, where);
  Handle attribute(H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, where);
  need(H5Awrite(attribute, type, value.empty() ? "" : value.data()), where);
}

std::optional<std::string> read_string(hid_t object, const std::string& name, const std::string& where) {
  if (H5Aexists(object, name.c_str()) <= 0) return std::nullopt;
  Handle attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose, where);
  Handle type(H5Aget_type(attribute), H5Tclose, where);
  if (H5Tget_class(type) != H5T_STRING || H5Tis_variable_str(type) > 0) {
    throw RuntimeFault(where + ": attribute '" + name + "' isn't a string of fixed length");
  }
  std::string value(std::min<size_t>(H5Tget_size(type), 1 << 20), '\0');
  need(H5Aread(attribute, type, value.data()), where);
  value.resize(std::min(value.size(), value.find('\0')));
  return value;
}

void write_dtype(hid_t dataset, DType dtype, const std::string& where) {
  if (dtype == kBool || dtype == kFloat16 || dtype == kBFloat16) {
    write_string(dataset, kDTypeAttribute, name_of(dtype), where);
  }
}

DType dtype_of_dataset(hid_t dataset, const std::string& where) {
  if (auto name = read_string(dataset, kDTypeAttribute, where)) return dtype_from_name(*name);
  Handle type(H5Dget_type(dataset), H5Tclose, where);
  const size_t size = H5Tget_size(type);
  const H5T_class_t kind = H5Tget_class(type);
  if (kind == H5T_FLOAT && size == 4) return kFloat32;
  if (kind == H5T_FLOAT && size == 8) return kFloat64;
  if (kind == H5T_INTEGER) {
    const bool is_signed = H5Tget_sign(type) == H5T_SGN_2;
    if (size == 1) return is_signed ? kInt8 : kUInt8;
    if (size == 2 && is_signed) return kInt16;
    if (size == 4 && is_signed) return kInt32;
    if (size == 8 && is_signed) return kInt64;
  }
  throw RuntimeFault(where + ": its element type isn't one that DTorch has");
}

}  // namespace dtorch::io::hdf5
