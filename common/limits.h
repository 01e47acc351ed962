// Every fixed bound of weft in one place (invariant bound.all). A bound that an operator may tune
// is a flag; its default stands here. Units are in the names.

#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

// Version of proto/weft/shard/v1/shard.proto that router and shard must share.
inline constexpr uint32_t kShardProtocolVersion = 2;

// -- Model shapes ------------------------------------------------------------------------------
inline constexpr uint32_t kWorldMax = 64;
inline constexpr uint32_t kLayersMax = 1024;
// Of one layer.
inline constexpr uint32_t kExpertsMax = 1024;
inline constexpr uint32_t kExpertsPerTokenMax = 32;
inline constexpr uint32_t kVocabMax = 1u << 20;
inline constexpr uint32_t kContextTokensMax = 1u << 20;
inline constexpr uint32_t kHiddenMax = 1u << 17;
inline constexpr uint32_t kHeadDimMax = 1024;

// -- Steps -------------------------------------------------------------------------------------
inline constexpr uint32_t kStepsInFlightMax = 2;
// Groups lost without progress: up to so many a sequence still shares steps; with so many it ends.
inline constexpr uint32_t kGroupLossesShared = 1;
inline constexpr uint32_t kGroupLossesMax = 4;
inline constexpr uint32_t kRunningMax = 1024;
inline constexpr uint32_t kRunningDefault = 64;
inline constexpr uint32_t kStepTokensMax = 16384;
inline constexpr uint32_t kStepTokensDefault = 512;
inline constexpr uint32_t kChunksPerStepMax = 64;
inline constexpr uint32_t kKvBlockTokensCpu = 16;
inline constexpr uint32_t kKvBlockTokensCuda = 64;
// A GPU reads its weights for many sequences at the price of few.
inline constexpr uint32_t kRunningDefaultCuda = 512;
inline constexpr uint32_t kStepTokensDefaultCuda = 8192;
// Forming an epoch: ranks meet (the first time NCCL starts up, with many GPUs that takes seconds),
// then GPUs exchange their memory. The router's call holds both.
inline constexpr int64_t kMeetUsMax = 20'000'000;
inline constexpr int64_t kConnectUsMax = 10'000'000;
inline constexpr int64_t kJoinUsMax = kMeetUsMax + kConnectUsMax + 2'000'000;
// Epochs go up by one an attempt. A call that names one further above the last than this is not of
// this group; a shard that has just started knows no last one, so that its first has a bound apart.
inline constexpr uint64_t kEpochJumpMax = uint64_t{1} << 20;
inline constexpr uint64_t kFirstEpochMax = uint64_t{1} << 40;
// A step waits so long for the masks of its rows, beside its forward; then its epoch fails.
inline constexpr int64_t kMaskWaitUsMax = 10'000'000;
// What a shard grants a step at most before it looks hung (shard/model/step_allowance.h).
inline constexpr int64_t kStepAllowedUsMax = 60'000'000;
// A device thread that is still not idle so long after its epoch was ended, and what was launched
// should have ended, is stuck: the process exits.
inline constexpr int64_t kLeaveIdleUs = 2'000'000;
// So a shard has left by then, or never will.
inline constexpr int64_t kLeaveUsMax = kLeaveIdleUs + kStepsInFlightMax * kStepAllowedUsMax;
// gRPC message limit of the shard wire: a chunk of kStepTokensMax ids with penalties fits.
inline constexpr size_t kShardMessageBytesMax = 16u << 20;

// -- Requests ----------------------------------------------------------------------------------
inline constexpr size_t kRequestIdBytesMax = 128;
inline constexpr size_t kStopSequencesMax = 16;
inline constexpr size_t kStopSequenceBytesMax = 1024;
inline constexpr size_t kLogitBiasMax = 1024;
// Of one prompt, prompts of one request, and answers of one request.
inline constexpr uint32_t kChoicesMax = 128;
inline constexpr size_t kPromptsMax = 256;
inline constexpr size_t kAnswersMax = 512;
inline constexpr size_t kStopTokenIdsMax = 64;
// Ids that a shard holds back until an answer has its least length: those that end it, the
// model's own among them.
inline constexpr size_t kHeldIdsMax = 256;
inline constexpr size_t kAllowedIdsMax = 4096;
inline constexpr size_t kBadWordsMax = 128;
inline constexpr size_t kBadWordBytesMax = 128;
inline constexpr size_t kCacheSaltBytesMax = 256;
inline constexpr int64_t kDeadlineMsMax = 86'400'000;
inline constexpr uint32_t kTopLogprobsMax = 20;
// Of the prompts of one request that are scored: tokens times one and the most likely ones wanted
// of each. What is said of so many stays below the 4 MiB that gRPC's clients take in a message.
inline constexpr uint32_t kPromptScoresMax = 200'000;
inline constexpr size_t kChatMessagesMax = 1024;
inline constexpr size_t kContentPartsMax = 1024;
inline constexpr size_t kToolsMax = 128;
// Of one message.
inline constexpr size_t kToolCallsMax = 128;
inline constexpr size_t kToolNameBytesMax = 64;
inline constexpr size_t kToolCallIdBytesMax = 256;
inline constexpr size_t kDocumentsMax = 1024;
inline constexpr size_t kTemplateKwargsMax = 64;
inline constexpr size_t kPromptBytesMax = 4u << 20;
inline constexpr size_t kBodyBytesDefault = 4u << 20;
// A longer JSON body is not parsed on the thread that serves its connection.
inline constexpr size_t kLongBodyBytes = 64u << 10;
inline constexpr size_t kHeaderBytesMax = 16u << 10;
inline constexpr size_t kTemplateOutputBytesMax = 8u << 20;
inline constexpr float kTemperatureMax = 100.0f;
// By how much ids outside of a mask may be less likely, where they may come.
inline constexpr float kMaskPenaltyMax = 100.0f;
// Below, sampling is greedy: no draw could tell, and logits divided by much less overflow.
inline constexpr float kTemperatureMin = 1e-4f;
inline constexpr float kRepetitionPenaltyMin = 0.01f;
inline constexpr float kRepetitionPenaltyMax = 10.0f;
inline constexpr float kLogitBiasAbsMax = 100.0f;
inline constexpr int32_t kPriorityAbsMax = 100;

// -- Grammars ----------------------------------------------------------------------------------
// Of a schema, a regular expression, a grammar; of choices together.
inline constexpr size_t kGrammarBytesMax = 256u << 10;
// CPU time of a compilation; of a mask, of a token consumed.
inline constexpr int64_t kGrammarCompileUsMax = 2'000'000;
inline constexpr int64_t kGrammarMaskUsMax = 20'000;
// What llguidance counts, long before the two above in most cases: symbols of a grammar, nodes of
// regular expressions that a compilation and a mask may make, items of the parser for a mask and
// behind a token.
inline constexpr size_t kGrammarSymbolsMax = 50'000;
inline constexpr uint64_t kGrammarCompileFuelMax = 1'000'000;
inline constexpr uint64_t kGrammarMaskFuelMax = 200'000;
inline constexpr size_t kGrammarMaskItemsMax = 50'000;
inline constexpr size_t kGrammarRowItemsMax = 2'500;
// Of the states that matchers of one grammar have found; beyond, they begin anew.
inline constexpr size_t kGrammarLexerBytesMax = 32u << 20;
inline constexpr size_t kGrammarCacheBytesDefault = 256u << 20;
// What ends the reasoning before a grammar: bytes or tokens, and how many such marks are kept.
inline constexpr size_t kGrammarMarkMax = 64;
inline constexpr size_t kGrammarMarksMax = 16;

// -- Calls and reasoning in answers (router/text/parts) ---------------------------------------
inline constexpr size_t kCalledNameBytesMax = 256;
inline constexpr size_t kToolHeaderBytesMax = 1024;
// Of a call that cannot be told from text yet, or of an argument whose type shows at its end.
inline constexpr size_t kToolCallHeldBytesMax = 64u << 10;
// Nested brackets in a call's arguments.
inline constexpr size_t kToolArgumentsDepthMax = 128;
// White space that belongs to the frame of a call when one follows.
inline constexpr size_t kAnswerSpaceHeldBytesMax = 256;

// Names of ignored fields that an answer lists.
inline constexpr size_t kIgnoredNamesMax = 16;

// -- Queues ------------------------------------------------------------------------------------
inline constexpr uint32_t kQueueRequestsDefault = 4096;
inline constexpr uint64_t kQueueTokensDefault = 4u << 20;
inline constexpr size_t kTextBytesDefault = 64u << 20;
inline constexpr size_t kEngineEventsMax = 65536;
inline constexpr size_t kTextJobsMax = 65536;
inline constexpr size_t kStreamBatchesMax = 1024;
inline constexpr size_t kConnectionsDefault = 4096;
inline constexpr size_t kGrpcConnectionsDefault = 1024;

// -- Tenants and keys --------------------------------------------------------------------------
inline constexpr size_t kTenantsMax = 1024;
// Tenants have indexes below: those of the key file, and those that have left it since the start.
inline constexpr uint32_t kTenantIndexMax = 4096;
inline constexpr size_t kTenantNameBytesMax = 64;
inline constexpr double kTenantWeightMin = 0.01;
inline constexpr double kTenantWeightMax = 1000;
inline constexpr uint32_t kTenantRequestsMax = 1'000'000;
inline constexpr uint64_t kTenantTokensPerMinuteMax = 10'000'000'000;
inline constexpr size_t kApiKeysMax = 16384;
inline constexpr size_t kApiKeyNameBytesMax = 128;
inline constexpr size_t kApiKeyBytesMax = 256;
inline constexpr size_t kKeyFileBytesMax = 8u << 20;
inline constexpr size_t kTlsFileBytesMax = 1u << 20;

}  // namespace weft
