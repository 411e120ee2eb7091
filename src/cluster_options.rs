//! Settings of a node of a cluster.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use rolltap_cluster::objects::{ObjectStorage, ObjectsUrl, S3Settings};
use rolltap_cluster::{ClusterName, ClusterSettings, ServerAddr};
use rolltap_proxy::NodeSettings;
use rolltap_proxy::store::ArchiveSettings;
use serde::Deserialize;

/// The time until a segment is closed, unless the user gives another one.
const SEGMENT_SECONDS: u64 = 300;
/// The copies of each record, unless the user gives another number.
const REPLICAS: usize = 3;

/// Settings that are a flag, a variable, and a key of the file of `rolltap proxy`.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[command(next_help_heading = "Cluster")]
#[serde(default)]
pub(crate) struct ClusterOptions {
    /// Be a node of a cluster, whose nodes share the NATS servers at these URLs. [default: no cluster]
    ///
    /// The servers need JetStream. One node of the cluster answers, and the others forward requests to it. Its captures are
    /// in NATS, and --data is a cache. When the node dies, another takes over within seconds, with all open trials.
    /// A URL is nats://HOST:4222 or tls://HOST:4222, and may have USER:PASSWORD@ before the host.
    #[arg(long, env = "ROLLTAP_CLUSTER", value_name = "URL", value_delimiter = ',', hide_env_values = true)]
    pub(crate) cluster: Vec<String>,
    /// Name the cluster. Clusters with different names can share NATS servers. [default: rolltap]
    #[arg(long, env = "ROLLTAP_CLUSTER_NAME", value_name = "NAME")]
    pub(crate) cluster_name: Option<String>,
    /// Keep each record on this many NATS servers: 1, 3 or 5. [default: 3]
    ///
    /// The first node of a cluster decides.
    #[arg(long, env = "ROLLTAP_CLUSTER_REPLICAS", value_name = "NUMBER")]
    pub(crate) cluster_replicas: Option<usize>,
    /// Identify the node to NATS by the credentials (.creds) or the NKey seed in this file.
    #[arg(long, env = "ROLLTAP_CLUSTER_CREDENTIALS", value_name = "FILE")]
    pub(crate) cluster_credentials: Option<PathBuf>,
    /// Trust the authorities in this PEM file for NATS servers with tls. [default: those of the system]
    #[arg(long, env = "ROLLTAP_CLUSTER_CA", value_name = "FILE")]
    pub(crate) cluster_ca: Option<PathBuf>,
    /// Upload closed segments of captures to this place, and remove them from NATS: s3://BUCKET/PREFIX or file:///DIR.
    /// [default: NATS keeps all captures]
    ///
    /// All nodes have the same place. A server with the S3 protocol is configured by the variables AWS_ACCESS_KEY_ID,
    /// AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL. `rolltap check`, `rolltap export` and `rolltap view` read
    /// captures there.
    #[arg(long, env = "ROLLTAP_CLUSTER_OBJECTS", value_name = "URL")]
    pub(crate) cluster_objects: Option<String>,
    /// Close a segment for upload after this time, or at 64 MiB. [default: 300]
    #[arg(long, env = "ROLLTAP_CLUSTER_SEGMENT_SECONDS", value_name = "SECONDS")]
    pub(crate) cluster_segment_seconds: Option<u64>,
    /// Let other nodes reach this one by this name or address of its host. [default: the addresses of --listen and --admin]
    ///
    /// It is needed where --listen or --admin is 0.0.0.0 or [::].
    #[arg(long, env = "ROLLTAP_NODE_HOST", value_name = "HOST")]
    pub(crate) node_host: Option<String>,
}

impl ClusterOptions {
    /// Returns the settings of a node. `None` without a cluster.
    ///
    /// # Errors
    /// Fails on a wrong value, and on a setting that has no effect without `cluster`.
    pub(crate) fn node(self) -> anyhow::Result<Option<NodeSettings>> {
        if self.cluster.is_empty() {
            let given = [
                ("cluster_name", self.cluster_name.is_some()),
                ("cluster_replicas", self.cluster_replicas.is_some()),
                ("cluster_credentials", self.cluster_credentials.is_some()),
                ("cluster_ca", self.cluster_ca.is_some()),
                ("cluster_objects", self.cluster_objects.is_some()),
                ("node_host", self.node_host.is_some()),
            ];
            if let Some((name, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
                bail!(
                    "{name} is given without cluster, which names the NATS servers, like nats://127.0.0.1:4222"
                );
            }
            return Ok(None);
        }
        let server = |url: &String| {
            let parsed: Result<ServerAddr, _> = url.parse();
            // The URL may have a password, so the error does not repeat it.
            parsed.context("cluster: a URL of a NATS server is like nats://127.0.0.1:4222")
        };
        let servers = self.cluster.iter().map(server).collect::<anyhow::Result<_>>()?;
        let name = self.cluster_name.map(|name| name.parse::<ClusterName>().context("cluster_name"));
        let replicas = self.cluster_replicas.unwrap_or(REPLICAS);
        if !matches!(replicas, 1 | 3 | 5) {
            bail!("cluster_replicas is {replicas}, and NATS keeps 1, 3 or 5 copies");
        }
        let cluster = ClusterSettings {
            servers,
            name: name.transpose()?.unwrap_or_default(),
            replicas,
            credentials: self.cluster_credentials,
            ca_file: self.cluster_ca,
        };
        let archive = match self.cluster_objects {
            Some(url) => Some(archive(&url, self.cluster_segment_seconds)?),
            None if self.cluster_segment_seconds.is_some() => {
                bail!("cluster_segment_seconds is given without cluster_objects, where closed segments go");
            }
            None => None,
        };
        Ok(Some(NodeSettings { cluster, archive, host: self.node_host }))
    }
}

/// Opens the object storage. No request is sent yet.
fn archive(url: &str, seconds: Option<u64>) -> anyhow::Result<ArchiveSettings> {
    let url: ObjectsUrl = url.parse().context("cluster_objects")?;
    let storage = ObjectStorage::open(&url, &S3Settings::from_env()).context("cluster_objects")?;
    let segment_age = Duration::from_secs(seconds.unwrap_or(SEGMENT_SECONDS).max(1));
    Ok(ArchiveSettings { storage, segment_age })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(url: &str) -> ClusterOptions {
        ClusterOptions { cluster: vec![url.to_owned()], ..ClusterOptions::default() }
    }

    #[test]
    fn a_cluster_has_servers_a_name_and_replicas() {
        assert!(ClusterOptions::default().node().unwrap().is_none());
        let node = options("nats://127.0.0.1:4222").node().unwrap().unwrap();
        assert_eq!((node.cluster.name.to_string(), node.cluster.replicas), ("rolltap".to_owned(), 3));
    }

    #[test]
    fn wrong_values_are_named_and_passwords_are_not() {
        let error = |options: ClusterOptions| format!("{:#}", options.node().unwrap_err());
        let wrong = error(options("http://user:secret@127.0.0.1:x"));
        assert!(wrong.contains("nats://127.0.0.1:4222") && !wrong.contains("secret"), "{wrong}");
        let lonely = ClusterOptions { node_host: Some("a".to_owned()), ..ClusterOptions::default() };
        assert!(error(lonely).starts_with("node_host is given without cluster"));
        let replicas = ClusterOptions { cluster_replicas: Some(2), ..options("nats://a") };
        assert!(error(replicas).contains("1, 3 or 5"));
        let name = ClusterOptions { cluster_name: Some("a.b".to_owned()), ..options("nats://a") };
        assert!(error(name).contains("cluster_name"));
    }
}
