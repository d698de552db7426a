#include "io/h5.h"

namespace annulus {
namespace {

herr_t keep_reason(unsigned, const H5E_error2_t* entry, void* text) {
  // Walking upward the first entry is the innermost: the reason rather than its consequences.
  auto& reason = *static_cast<std::string*>(text);
  if (reason.empty() && entry->desc != nullptr) reason = entry->desc;
  return 0;
}

}  // namespace

void h5_start() {
  static const bool started = [] {
    h5(H5open(), "H5open");
    h5(H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr), "H5Eset_auto2");
    h5(H5PLset_loading_state(0), "H5PLset_loading_state");
    return true;
  }();
  static_cast<void>(started);
}

void h5_fail(std::string_view call) {
  std::string reason;
  if (H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, &keep_reason, &reason) < 0 || reason.empty())
    reason = "no reason given";
  throw H5Failure(std::string(call) + ": " + reason);
}

H5Type h5_type(H5Kind kind) {
  hid_t like = H5T_IEEE_F32LE;
  switch (kind) {
    case H5Kind::f32:
    case H5Kind::bf16:
      break;
    case H5Kind::f64:
      like = H5T_IEEE_F64LE;
      break;
    case H5Kind::i32:
      like = H5T_STD_I32LE;
      break;
    case H5Kind::i64:
      like = H5T_STD_I64LE;
      break;
    case H5Kind::u8:
      like = H5T_STD_U8LE;
      break;
    case H5Kind::u32:
      like = H5T_STD_U32LE;
      break;
  }
  H5Type type(H5Tcopy(like), "H5Tcopy");
  if (kind == H5Kind::bf16) {
    // In this order: fields must always fit the size of the moment.
    h5(H5Tset_fields(type.id(), 15, 7, 8, 0, 7), "H5Tset_fields");
    h5(H5Tset_precision(type.id(), 16), "H5Tset_precision");
    h5(H5Tset_offset(type.id(), 0), "H5Tset_offset");
    h5(H5Tset_size(type.id(), 2), "H5Tset_size");
    h5(H5Tset_ebias(type.id(), 127), "H5Tset_ebias");
  }
  return type;
}

void h5_write_text(hid_t object, const std::string& name, const std::string& text) {
  const H5Type type(H5Tcopy(H5T_C_S1), "H5Tcopy");
  h5(H5Tset_size(type.id(), text.empty() ? 1 : text.size()), "H5Tset_size");
  h5(H5Tset_strpad(type.id(), H5T_STR_NULLPAD), "H5Tset_strpad");
  h5(H5Tset_cset(type.id(), H5T_CSET_UTF8), "H5Tset_cset");
  const H5Space space(H5Screate(H5S_SCALAR), "H5Screate");
  const H5Attribute a(H5Acreate2(object, name.c_str(), type.id(), space.id(), H5P_DEFAULT, H5P_DEFAULT),
                      "H5Acreate2 " + name);
  h5(H5Awrite(a.id(), type.id(), text.empty() ? "" : text.data()), "H5Awrite " + name);
}

std::string h5_read_text(hid_t object, const std::string& name, std::size_t limit) {
  const H5Attribute a(H5Aopen(object, name.c_str(), H5P_DEFAULT), "H5Aopen " + name);
  const H5Type type(H5Aget_type(a.id()), "H5Aget_type");
  const H5Space space(H5Aget_space(a.id()), "H5Aget_space");
  if (H5Tget_class(type.id()) != H5T_STRING || h5(H5Tis_variable_str(type.id()), "H5Tis_variable_str") > 0 ||
      H5Sget_simple_extent_type(space.id()) != H5S_SCALAR)
    throw H5Failure("attribute " + name + " is not a string of fixed length");
  const std::size_t size = H5Tget_size(type.id());
  if (size == 0 || size > limit)
    throw H5Failure("attribute " + name + " has " + std::to_string(size) + " bytes");
  std::string text(size, '\0');
  h5(H5Aread(a.id(), type.id(), text.data()), "H5Aread " + name);
  text.resize(text.find_last_not_of('\0') + 1);
  return text;
}

void h5_create_number(hid_t object, const char* name, std::int64_t value) {
  const H5Space space(H5Screate(H5S_SCALAR), "H5Screate");
  const H5Attribute a(H5Acreate2(object, name, H5T_STD_I64LE, space.id(), H5P_DEFAULT, H5P_DEFAULT),
                      "H5Acreate2");
  h5(H5Awrite(a.id(), H5T_NATIVE_INT64, &value), "H5Awrite");
}

void h5_set_number(hid_t object, const char* name, std::int64_t value) {
  const H5Attribute a(H5Aopen(object, name, H5P_DEFAULT), "H5Aopen");
  h5(H5Awrite(a.id(), H5T_NATIVE_INT64, &value), "H5Awrite");
}

std::int64_t h5_read_number(hid_t object, const char* name) {
  const H5Attribute a(H5Aopen(object, name, H5P_DEFAULT), std::string("attribute ") + name);
  const H5Type type(H5Aget_type(a.id()), "H5Aget_type");
  const H5Space space(H5Aget_space(a.id()), "H5Aget_space");
  if (h5(H5Tequal(type.id(), H5T_STD_I64LE), "H5Tequal") <= 0 ||
      H5Sget_simple_extent_type(space.id()) != H5S_SCALAR)
    throw H5Failure(std::string("attribute ") + name + " is not one 64-bit integer");
  std::int64_t value = 0;
  h5(H5Aread(a.id(), H5T_NATIVE_INT64, &value), "H5Aread");
  return value;
}

}  // namespace annulus
