//! The connection to NATS, and the record that identifies a cluster.

mod connection;
pub(crate) mod entry;
mod nats_thread;
mod settings;

use std::fmt;
use std::future::Future;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::jetstream::kv::{self, Operation, Store};
use async_nats::jetstream::{self, Context, stream};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use uuid::Uuid;

use self::connection::Violations;
use self::nats_thread::NatsThread;
pub use self::settings::{ClusterName, ClusterSettings, InvalidClusterName, Member};

/// The time in which NATS must create a bucket or a stream, for which its servers elect a leader.
const CREATE_TIMEOUT: Duration = Duration::from_secs(15);
/// The pause before a request is repeated.
const AGAIN: Duration = Duration::from_millis(500);
/// The version of the records in the bucket.
const FORMAT: u32 = 1;
/// The numbers of shards that a cluster may have. Each node looks at the lease of each shard four times a second.
pub const SHARDS: RangeInclusive<u32> = 1..=64;
/// The key of the record that identifies the cluster.
const CLUSTER_KEY: &str = "cluster";

/// Why a node cannot use its cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A file of the settings cannot be read.
    #[error("cannot read {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The connection needs a thread.
    #[error(
        "cannot start a thread for the connection to NATS: {0}; allow this process more threads or open files"
    )]
    Thread(std::io::Error),
    /// No server accepts the connection.
    #[error(
        "cannot connect to NATS at {servers}: {reason}; start nats-server with JetStream (`nats-server -js`), or correct \
         --cluster"
    )]
    Unreachable {
        /// The addresses.
        servers: String,
        /// The error of the client.
        reason: String,
    },
    /// The request was refused or not answered.
    #[error("NATS at {servers} cannot {action}: {reason}{remedy}")]
    Refused {
        /// The addresses.
        servers: String,
        /// What was asked for, as a verb with its object.
        action: String,
        /// The error of the server or the client.
        reason: String,
        /// What to do, after `; `, or nothing.
        remedy: &'static str,
    },
    /// The bucket was made by a rolltap with other records, or by another program.
    #[error(
        "the bucket {bucket} of NATS is not a cluster that this rolltap can join: {reason}; give another --cluster-name"
    )]
    Foreign {
        /// The name of the bucket.
        bucket: String,
        /// What is wrong with the record.
        reason: String,
    },
    /// The number of shards is another one than that of the cluster.
    #[error(
        "the cluster {cluster} has {shards} shards and not {given}: the number cannot change, because it decides where the \
         captures of a group are; leave out --cluster-shards, or give another --cluster-name"
    )]
    Shards {
        /// The name of the cluster.
        cluster: ClusterName,
        /// The number that its first node chose.
        shards: u32,
        /// The number in the settings.
        given: u32,
    },
}

/// The record that identifies a cluster. It changes once at most, when the first node decides the number of shards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ClusterRecord {
    /// The version of all records in the bucket.
    format: u32,
    id: Uuid,
    /// The number of shards. `None` before the first node.
    shards: Option<u32>,
}

/// A connection to the NATS servers of a cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    nats: Nats,
    bucket: Store,
    id: Uuid,
    shards: u32,
}

/// A connection to NATS, and the name and replicas of what the cluster has there.
#[derive(Clone, Debug)]
struct Nats {
    context: Context,
    thread: NatsThread,
    servers: String,
    name: ClusterName,
    replicas: usize,
    violations: Violations,
}

/// Connects to NATS, and creates the bucket of the cluster if it is the first node.
///
/// # Errors
/// Fails if no server answers within ten seconds, if JetStream is not available, and if the bucket has records of another
/// format.
pub async fn connect(settings: &ClusterSettings) -> Result<Cluster, ClusterError> {
    Nats::dial(settings).await?.join(settings.member).await
}

/// Connects to NATS, and waits until another process has created the bucket of the cluster. A worker lacks the permission to
/// create it.
///
/// # Errors
/// Fails if no server answers within ten seconds, and if the bucket has records of another format.
pub async fn connect_to_existing(settings: &ClusterSettings) -> Result<Cluster, ClusterError> {
    Nats::dial(settings).await?.wait().await
}

impl Nats {
    async fn join(self, member: Member) -> Result<Cluster, ClusterError> {
        let bucket_name = self.bucket_name();
        let bucket = match self.context.get_key_value(&bucket_name).await {
            Ok(bucket) => bucket,
            Err(_) => self.create_bucket(lease_bucket(&bucket_name, self.replicas)).await?,
        };
        let ends = Instant::now() + CREATE_TIMEOUT;
        let record = loop {
            match self.record(&bucket, member).await {
                // The servers still elect a leader of a bucket that another node has just created.
                Err(ClusterError::Refused { .. }) if Instant::now() < ends => tokio::time::sleep(AGAIN).await,
                record => break record?,
            }
        };
        self.cluster(bucket, &record, member)
    }

    async fn wait(self) -> Result<Cluster, ClusterError> {
        let mut is_first = true;
        loop {
            let missing = match self.context.get_key_value(self.bucket_name()).await {
                Ok(bucket) => match self.read_record(&bucket).await {
                    Ok(Some((record, _))) => return self.cluster(bucket, &record, Member::Client),
                    Ok(None) => "it has no record of a cluster".to_owned(),
                    Err(foreign @ ClusterError::Foreign { .. }) => return Err(foreign),
                    Err(error) => error.to_string(),
                },
                Err(error) => error.to_string(),
            };
            if std::mem::take(&mut is_first) {
                tracing::info!(bucket = self.bucket_name(), missing, "waiting for the bucket of the cluster");
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    fn bucket_name(&self) -> String {
        format!("rolltap-{}", self.name)
    }

    fn cluster(self, bucket: Store, record: &ClusterRecord, member: Member) -> Result<Cluster, ClusterError> {
        let foreign = |reason| ClusterError::Foreign { bucket: self.bucket_name(), reason };
        if record.format != FORMAT {
            let reason = format!("its records have format {}, and this rolltap has {FORMAT}", record.format);
            return Err(foreign(reason));
        }
        let shards = record.shards.unwrap_or(1);
        if !SHARDS.contains(&shards) {
            return Err(foreign(format!("it has {shards} shards")));
        }
        if let Member::Node { shards: Some(given) } = member
            && given != shards
        {
            return Err(ClusterError::Shards { cluster: self.name, shards, given });
        }
        Ok(Cluster { nats: self, bucket, id: record.id, shards })
    }

    async fn create_bucket(&self, config: kv::Config) -> Result<Store, ClusterError> {
        let name = config.bucket.clone();
        let created = patient(&self.context).create_key_value(config).await;
        created.map_err(|error| self.refused(&format!("create the bucket {name}"), &error, REPLICAS_REMEDY))
    }

    /// Reads the record of the cluster. The first process of the cluster writes it, and the first node adds the number of
    /// shards.
    async fn record(&self, bucket: &Store, member: Member) -> Result<ClusterRecord, ClusterError> {
        let decided = match member {
            Member::Client => None,
            Member::Node { shards } => Some(shards.unwrap_or(1)),
        };
        // A worker may read the bucket and not write to it, so the record is read first.
        let (written, wanted) = match self.read_record(bucket).await? {
            None => {
                let wanted = ClusterRecord { format: FORMAT, id: Uuid::now_v7(), shards: decided };
                (bucket.create(CLUSTER_KEY, json(&wanted)).await.map_err(|error| error.to_string()), wanted)
            }
            Some((found, revision))
                if found.format == FORMAT && found.shards.is_none() && decided.is_some() =>
            {
                let wanted = ClusterRecord { shards: decided, ..found };
                let written = bucket.update(CLUSTER_KEY, json(&wanted), revision).await;
                (written.map_err(|error| error.to_string()), wanted)
            }
            Some((found, _)) => return Ok(found),
        };
        // The write conflicts with that of another process, or its answer was lost. The caller reads the record again.
        written.map_err(|error| self.refused("write the record of the cluster", &error, ""))?;
        Ok(wanted)
    }

    /// Reads the record of the cluster and its revision. `None` if nobody has written it.
    async fn read_record(&self, bucket: &Store) -> Result<Option<(ClusterRecord, u64)>, ClusterError> {
        let read = bucket.entry(CLUSTER_KEY).await;
        let entry = read.map_err(|error| self.refused("read the record of the cluster", &error, ""))?;
        let Some(entry) = entry.filter(|entry| entry.operation == Operation::Put) else { return Ok(None) };
        let record = serde_json::from_slice(&entry.value).map_err(|error| ClusterError::Foreign {
            bucket: bucket.name.clone(),
            reason: format!("its key {CLUSTER_KEY:?} has no record of a cluster: {error}"),
        })?;
        Ok(Some((record, entry.revision)))
    }

    fn refused(&self, action: &str, reason: &dyn fmt::Display, remedy: &'static str) -> ClusterError {
        let (servers, action) = (self.servers.clone(), action.to_owned());
        match self.violations.latest() {
            // NATS does not answer such a request, so the error of the client is a timeout.
            Some(violation) => {
                let reason = format!("{violation}; {reason}");
                ClusterError::Refused { servers, action, reason, remedy: PERMISSION_REMEDY }
            }
            None => ClusterError::Refused { servers, action, reason: reason.to_string(), remedy },
        }
    }
}

/// The remedy when a bucket or stream cannot be created. Too few servers for the replicas are by far the most frequent cause.
const REPLICAS_REMEDY: &str = "; --cluster-replicas N needs N NATS servers with JetStream, and `--cluster-replicas 1` keeps a single copy";

/// The remedy when the user may not publish or subscribe to a subject.
const PERMISSION_REMEDY: &str = "; give the user the permissions of its role for this --cluster-name (deploy/nats/accounts.conf), or connect as another user";

impl Cluster {
    /// The identity of the cluster, which its first node chose.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// The number of shards, which its first node decided. One before there is a node.
    pub fn shards(&self) -> u32 {
        self.shards
    }

    /// The name of the cluster.
    pub fn name(&self) -> &ClusterName {
        &self.nats.name
    }

    pub(crate) fn bucket(&self) -> &Store {
        &self.bucket
    }

    pub(crate) fn context(&self) -> &Context {
        &self.nats.context
    }

    /// Runs a task on the thread of the connection. The task must not block.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.nats.thread.spawn(task)
    }

    /// The largest message that the server accepts, in bytes.
    pub(crate) fn max_payload(&self) -> usize {
        self.nats.context.client().server_info().max_payload
    }

    /// The number of copies of each record.
    pub(crate) fn replicas(&self) -> usize {
        self.nats.replicas
    }

    /// Opens the stream of a log, and creates it if it is missing.
    pub(crate) async fn log_stream(
        &self,
        name: String,
        subject: String,
    ) -> Result<stream::Stream, ClusterError> {
        let config = stream::Config {
            name,
            subjects: vec![subject],
            storage: stream::StorageType::File,
            num_replicas: self.nats.replicas,
            // A message that no longer fits is refused, and nothing is dropped for it.
            discard: stream::DiscardPolicy::New,
            // Messages are deleted by the holder of the shard alone.
            deny_delete: true,
            duplicate_window: Duration::ZERO,
            ..stream::Config::default()
        };
        self.open_stream(config).await
    }

    /// Opens the stream of this name as it is, and creates it if it is missing.
    pub(crate) async fn open_stream(&self, config: stream::Config) -> Result<stream::Stream, ClusterError> {
        if let Some(existing) = self.find_stream(&config.name).await {
            return Ok(existing);
        }
        let name = config.name.clone();
        let created = patient(&self.nats.context).get_or_create_stream(config).await;
        created.map_err(|error| self.refused(&format!("create the stream {name}"), &error, REPLICAS_REMEDY))
    }

    /// Opens the bucket of this name as it is, and creates it if it is missing.
    pub(crate) async fn open_bucket(&self, config: kv::Config) -> Result<Store, ClusterError> {
        match self.find_bucket(&config.bucket).await {
            Some(existing) => Ok(existing),
            None => self.nats.create_bucket(config).await,
        }
    }

    /// Returns the stream of this name. `None` if it does not exist, or NATS does not answer.
    pub(crate) async fn find_stream(&self, name: &str) -> Option<stream::Stream> {
        self.nats.context.get_stream(name).await.ok()
    }

    /// Returns the bucket of this name. `None` if it does not exist, or NATS does not answer.
    pub(crate) async fn find_bucket(&self, name: &str) -> Option<Store> {
        self.nats.context.get_key_value(name).await.ok()
    }

    pub(crate) fn refused(
        &self,
        action: &str,
        reason: &dyn fmt::Display,
        remedy: &'static str,
    ) -> ClusterError {
        self.nats.refused(action, reason, remedy)
    }
}

fn lease_bucket(name: &str, replicas: usize) -> kv::Config {
    kv::Config {
        bucket: name.to_owned(),
        description: "The leases of a rolltap cluster".to_owned(),
        history: 1,
        num_replicas: replicas,
        storage: stream::StorageType::File,
        ..kv::Config::default()
    }
}

/// Returns a context for requests that take long.
fn patient(context: &Context) -> Context {
    jetstream::ContextBuilder::new().timeout(CREATE_TIMEOUT).build(context.client())
}

/// Encodes a record. A record has no map with keys other than strings, so the encoding cannot fail.
pub(crate) fn json(record: &impl Serialize) -> bytes::Bytes {
    serde_json::to_vec(record).unwrap_or_default().into()
}
