//! `GET /metrics`: the few metrics of vLLM that callers use, as Prometheus text.

use std::fmt::Display;
use std::sync::Arc;

use super::errors::python_float;
use super::server::Server;
use super::server::admission::Admission;

/// Returns the metrics in vLLM's names and labels. Those of the KV cache exist only if its number of blocks is limited.
pub(super) fn metrics(server: &Server) -> String {
    let stats = server.stats();
    let labels = format!("engine=\"0\",model_name=\"{}\"", server.settings.model);
    let running = stats.running.saturating_sub(stats.waiting);
    let mut text = [
        ("num_requests_running", "gauge", "Number of requests in model execution batches.", running),
        ("num_requests_waiting", "gauge", "Number of requests waiting to be processed.", stats.waiting),
        ("prompt_tokens_total", "counter", "Number of prefill tokens processed.", stats.prompt_tokens),
        (
            "generation_tokens_total",
            "counter",
            "Number of generation tokens processed.",
            stats.generation_tokens,
        ),
    ]
    .map(|(name, kind, help, value)| metric(name, kind, help, &labels, format_args!("{value}.0")))
    .concat();
    if let Some(admission) = &server.admission {
        text += &of_cache(admission, server, &labels);
    }
    text
}

fn of_cache(admission: &Arc<Admission>, server: &Server, labels: &str) -> String {
    let (usage, counts) = {
        let cache = admission.cache();
        (cache.usage(), cache.counts())
    };
    // vLLM counts the null block too. Its labels are all settings of the cache, of which these are the useful ones.
    let blocks = server.settings.kv_blocks.unwrap_or_default();
    let block_size = server.settings.kv_block_size;
    let configuration = format!(
        "block_size=\"{block_size}\",cache_dtype=\"auto\",enable_prefix_caching=\"True\",engine=\"0\",\
         num_gpu_blocks=\"{blocks}\""
    );
    let help = "Information of the LLMEngine CacheConfig";
    let mut text = metric("cache_config_info", "gauge", help, &configuration, "1.0");
    let help = "KV-cache usage. 1 means 100 percent usage.";
    text += &metric("kv_cache_usage_perc", "gauge", help, labels, python_float(usage));
    for (name, help, value) in [
        (
            "prefix_cache_queries_total",
            "Prefix cache queries, in terms of number of queried tokens.",
            counts.queries,
        ),
        ("prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens.", counts.hits),
        ("num_preemptions_total", "Cumulative number of preemption from the engine.", counts.preemptions),
    ] {
        text += &metric(name, "counter", help, labels, format_args!("{value}.0"));
    }
    text
}

fn metric(name: &str, kind: &str, help: &str, labels: &str, value: impl Display) -> String {
    format!("# HELP vllm:{name} {help}\n# TYPE vllm:{name} {kind}\nvllm:{name}{{{labels}}} {value}\n")
}
