//! Gemini's `generateContent`, `streamGenerateContent` and `countTokens`, translated to chat completions and back.
//!
//! **Carried over:** turns of text and images (inline, or by an http address), function calls and responses, thoughts,
//! the system instruction, function declarations with either form of schema, the mode of function calling, sampling,
//! stop sequences, JSON and enum output, the thinking config, and vLLM's own sampling keys. Fields may be spelt in
//! lowerCamelCase or as in the protobuf.
//!
//! **Reasoning** comes back in thought signatures ([`signature`]); `includeThoughts` says whether it is also shown.
//!
//! **Accepted without effect:** `safetySettings`, `labels`, `store`, `serviceTier`, `model` in the body; `retrievalConfig`
//! and `includeServerSideToolInvocations` of a tool config; the schema of a function's response; `scheduling` of one;
//! `partMetadata`; `displayName` of a file; `enableEnhancedCivicAnswers`; signatures of other models.
//!
//! **Refused:** tools that Google's servers run, `cachedContent`, `responseLogprobs`, files and media other than images,
//! output other than text, and every field that is not known. `docs/reference/dialects/gemini.md` has it all for users.

mod answer;
mod contents;
pub(crate) mod error;
mod fields;
mod generation;
mod part;
pub(crate) mod request;
mod schema;
mod signature;
mod stream;
mod tools;
