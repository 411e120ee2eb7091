//! Translates Gemini's `generateContent`, `streamGenerateContent` and `countTokens` to chat completions and back.
//!
//! **Translated:** turns of text and images (inline, or by an http address), function calls and responses, thoughts,
//! the system instruction, function declarations with either form of schema, the mode of function calling, sampling,
//! stop sequences, JSON and enum output, the thinking config, and vLLM's own sampling keys. Field names may be in
//! lowerCamelCase or as in the protobuf.
//!
//! **Reasoning** returns with the next request in thought signatures ([`signature`]). `includeThoughts` determines
//! whether the agent also sees it.
//!
//! **Accepted without effect:** `safetySettings`, `labels`, `store`, `serviceTier`, `model` in the body;
//! `retrievalConfig` and `includeServerSideToolInvocations` of a tool config; the schema of a function's response;
//! `scheduling` of a response; `partMetadata`; `displayName` of a file; `enableEnhancedCivicAnswers`; signatures of
//! other models.
//!
//! **Rejected:** tools that Google's servers run, `cachedContent`, `responseLogprobs`, files and media other than
//! images, output other than text, and every unknown field. `docs/reference/dialects/gemini.md` has the complete list
//! for users.

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
