// Bodies of TGI's routes: tgi/request.cc, tokenize.cc.

#include "common/limits.h"
#include "router/doors/api/bodies.h"
#include "router/doors/tgi/request.h"

namespace weft::router::api {
namespace {

ApiFields Parameters() {
  ApiFields fields = CommonFields();
  AddFields(
      {Real("temperature", {0, kTemperatureMax, true}), Flag("do_sample", false), StopField("stop"),
       TokenCountField("max_new_tokens"), Whole("min_new_tokens", 0, kContextTokensMax, 0),
       Json("grammar", ObjectSchema({Must(Json("type", R"("enum":["json","json_object",)"
                                                       R"("json_schema","regex"])")),
                                     Json("value", R"("type":["object","string","boolean"])")})),
       TokenCountField("truncate"), Flag("details", false), Whole("best_of", 1, kChoicesMax, 1),
       Flag("return_full_text", false), Flag("decoder_input_details", false), Whole("top_n_tokens", 0, kTopLogprobsMax, 0),
       ResumeField()},
      &fields);
  AddRefused(RefusedTgiParameters(), &fields);
  return fields;
}

}  // namespace

std::vector<ApiBody> TgiBodies() {
  ApiFields generate = {Must(Json("inputs", TextOrIdsSchema())),
                        Json("parameters", ObjectSchema(Parameters())),
                        Json("stream", R"("type":"boolean")")};
  AddRefused(RefusedTgiFields(), &generate);
  return {{"GenerateRequest", std::move(generate)},
          {"TokenizeInputs",
           {Must(Json("inputs", R"("type":"string","minLength":1)")),
            Flag("add_special_tokens", true), Ignored("parameters")}}};
}

}  // namespace weft::router::api
