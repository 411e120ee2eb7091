//! How commands reach a cluster: NATS, and object storage.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use rolltap_cluster::objects::{ObjectStorage, ObjectsUrl, S3Settings};
use rolltap_cluster::{ClusterName, ClusterSettings, Member, ServerAddr};
use rolltap_orchestrator::job::WorkerCluster;
use serde::Deserialize;

/// The copies of each record, unless the user gives another number.
const REPLICAS: usize = 3;

/// Settings that are a flag, a variable, and a key of the file of `rolltap proxy`.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[command(next_help_heading = "Cluster")]
#[serde(default)]
pub(crate) struct ClusterOptions {
    /// Join the cluster whose parts share the NATS servers at these URLs. [default: no cluster]
    ///
    /// The servers need JetStream. A proxy is a node of the cluster: one node answers, and the others forward requests to it;
    /// its captures are in NATS, and --data is a cache; when it dies, another takes over within seconds, with all open
    /// trials. `rolltap run` and `rolltap serve` let the workers of the cluster run their trials, on other hosts. A URL is
    /// nats://HOST:4222 or tls://HOST:4222, and may have USER:PASSWORD@ before the host.
    #[arg(long, env = "ROLLTAP_CLUSTER", value_name = "URL", value_delimiter = ',', hide_env_values = true)]
    pub(crate) cluster: Vec<String>,
    /// Name the cluster. Clusters with different names can share NATS servers. [default: rolltap]
    #[arg(long, env = "ROLLTAP_CLUSTER_NAME", value_name = "NAME")]
    pub(crate) cluster_name: Option<String>,
    /// Keep each record on this many NATS servers: 1, 3 or 5. [default: 3]
    ///
    /// The first that comes decides.
    #[arg(long, env = "ROLLTAP_CLUSTER_REPLICAS", value_name = "NUMBER")]
    pub(crate) cluster_replicas: Option<usize>,
    /// Identify this process to NATS by the credentials (.creds) or the NKey seed in this file.
    #[arg(long, env = "ROLLTAP_CLUSTER_CREDENTIALS", value_name = "FILE")]
    pub(crate) cluster_credentials: Option<PathBuf>,
    /// Trust the authorities in this PEM file for NATS servers with tls. [default: those of the system]
    #[arg(long, env = "ROLLTAP_CLUSTER_CA", value_name = "FILE")]
    pub(crate) cluster_ca: Option<PathBuf>,
    /// Use this place in object storage: s3://BUCKET/PREFIX or file:///DIR. [default: none]
    ///
    /// All parts of a cluster have the same place. A proxy uploads closed segments of captures to it and removes them from
    /// NATS, which otherwise keeps all captures. Workers need it: tasks and the folders of trials go through it. A server
    /// with the S3 protocol is configured by the variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and
    /// AWS_ENDPOINT_URL. `rolltap check`, `rolltap export` and `rolltap view` read captures there.
    #[arg(long, env = "ROLLTAP_CLUSTER_OBJECTS", value_name = "URL")]
    pub(crate) cluster_objects: Option<String>,
}

impl ClusterOptions {
    /// Whether a cluster is given.
    pub(crate) fn is_given(&self) -> bool {
        !self.cluster.is_empty()
    }

    /// Returns how NATS is reached. `None` without a cluster.
    ///
    /// # Errors
    /// Fails on a wrong value, and on a setting that has no effect without `cluster`.
    pub(crate) fn nats(&self) -> anyhow::Result<Option<ClusterSettings>> {
        if self.cluster.is_empty() {
            let given = [
                ("cluster_name", self.cluster_name.is_some()),
                ("cluster_replicas", self.cluster_replicas.is_some()),
                ("cluster_credentials", self.cluster_credentials.is_some()),
                ("cluster_ca", self.cluster_ca.is_some()),
                ("cluster_objects", self.cluster_objects.is_some()),
            ];
            return given
                .into_iter()
                .find(|(_, is_given)| *is_given)
                .map_or(Ok(None), |(name, _)| alone(name));
        }
        let server = |url: &String| {
            let parsed: Result<ServerAddr, _> = url.parse();
            // The URL may have a password, so the error does not repeat it.
            parsed.context("cluster: a URL of a NATS server is like nats://127.0.0.1:4222")
        };
        let servers = self.cluster.iter().map(server).collect::<anyhow::Result<_>>()?;
        let name = self.cluster_name.as_ref().map(|name| name.parse::<ClusterName>().context("cluster_name"));
        let replicas = self.cluster_replicas.unwrap_or(REPLICAS);
        if !matches!(replicas, 1 | 3 | 5) {
            bail!("cluster_replicas is {replicas}, and NATS keeps 1, 3 or 5 copies");
        }
        Ok(Some(ClusterSettings {
            servers,
            name: name.transpose()?.unwrap_or_default(),
            replicas,
            member: Member::Client,
            credentials: self.cluster_credentials.clone(),
            ca_file: self.cluster_ca.clone(),
        }))
    }

    /// Opens the object storage. `None` if none is given. No request is sent yet.
    ///
    /// # Errors
    /// Fails on a wrong URL, and if a variable of S3 is missing.
    pub(crate) fn objects(&self) -> anyhow::Result<Option<ObjectStorage>> {
        let Some(url) = &self.cluster_objects else { return Ok(None) };
        let url: ObjectsUrl = url.parse().context("cluster_objects")?;
        Ok(Some(ObjectStorage::open(&url, &S3Settings::from_env()).context("cluster_objects")?))
    }

    /// Returns the cluster whose workers run trials. `None` without a cluster.
    ///
    /// # Errors
    /// Fails as [`Self::nats`] and [`Self::objects`] do, and without object storage.
    pub(crate) fn workers(&self) -> anyhow::Result<Option<WorkerCluster>> {
        let Some(nats) = self.nats()? else { return Ok(None) };
        let objects = self.objects()?.context(
            "cluster is given without cluster_objects: tasks and the folders of trials go through object storage; give \
             s3://BUCKET/PREFIX, or file:///DIR on a file system that all hosts share",
        )?;
        Ok(Some(WorkerCluster { nats, objects }))
    }
}

/// The error of a setting that has no effect without `cluster`.
pub(crate) fn alone<T>(name: &str) -> anyhow::Result<T> {
    bail!("{name} is given without cluster, which names the NATS servers, like nats://127.0.0.1:4222")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(url: &str) -> ClusterOptions {
        ClusterOptions { cluster: vec![url.to_owned()], ..ClusterOptions::default() }
    }

    #[test]
    fn a_cluster_has_servers_a_name_and_replicas() {
        assert!(ClusterOptions::default().nats().unwrap().is_none());
        let nats = options("nats://127.0.0.1:4222").nats().unwrap().unwrap();
        assert_eq!((nats.name.to_string(), nats.replicas), ("rolltap".to_owned(), 3));
    }

    #[test]
    fn workers_need_object_storage() {
        let without = options("nats://127.0.0.1:4222").workers().unwrap_err();
        assert!(without.to_string().contains("cluster_objects"), "{without}");
        let with = ClusterOptions {
            cluster_objects: Some("file:///tmp/objects".to_owned()),
            ..options("nats://127.0.0.1:4222")
        };
        assert!(with.workers().unwrap().is_some());
    }

    #[test]
    fn wrong_values_are_named_and_passwords_are_not() {
        let error = |options: ClusterOptions| format!("{:#}", options.nats().unwrap_err());
        let wrong = error(options("http://user:secret@127.0.0.1:x"));
        assert!(wrong.contains("nats://127.0.0.1:4222") && !wrong.contains("secret"), "{wrong}");
        let lonely = ClusterOptions { cluster_name: Some("a".to_owned()), ..ClusterOptions::default() };
        assert!(error(lonely).starts_with("cluster_name is given without cluster"));
        let replicas = ClusterOptions { cluster_replicas: Some(2), ..options("nats://a") };
        assert!(error(replicas).contains("1, 3 or 5"));
        let name = ClusterOptions { cluster_name: Some("a.b".to_owned()), ..options("nats://a") };
        assert!(error(name).contains("cluster_name"));
    }
}
