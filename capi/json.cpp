#include "capi/json.h"

#include "capi/errors.h"

namespace jit::c {

char* json_text_of(const Json& json) {
  return text_of(json.dump(2, ' ', false, Json::error_handler_t::replace));
}

}  // namespace jit::c
