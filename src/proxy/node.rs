//! `rolltap proxy --cluster`: a node of a cluster.

use rolltap_proxy::{NodeError, NodeSettings, NodeStatus, Settings, start_node};
use sd_notify::NotifyState;

use super::{GRACE, announce, notify};
use crate::Outcome;
use crate::terminal::{self, StopSignals};

/// Runs the node until a signal, or until another node takes over.
pub(super) async fn run(
    settings: Settings,
    node: NodeSettings,
    exposed: Option<String>,
    mut stop: StopSignals,
) -> anyhow::Result<Outcome> {
    let name = node.cluster.name.clone();
    let node = start_node(settings, node).await?;
    announce(exposed, "http", node.agent_addrs(), node.admin_addr());
    // A standby answers too: it forwards to the holder.
    notify(NotifyState::Ready);
    let stopped = async move {
        stop.next().await;
        notify(NotifyState::Stopping);
    };
    match node.run(stopped, GRACE, move |status| show(&name.to_string(), &status)).await {
        Ok(()) => Ok(Outcome::Done),
        Err(NodeError::Shutdown(error)) => {
            terminal::report(&error.into());
            Ok(Outcome::Failed)
        }
        Err(error) => Err(error.into()),
    }
}

fn show(cluster: &str, status: &NodeStatus) {
    match status {
        NodeStatus::Standby(holders) => {
            let text = standby(holders);
            terminal::say(format_args!("cluster {cluster}: {text}"));
        }
        NodeStatus::Restoring { shard, epoch } => {
            terminal::say(format_args!(
                "cluster {cluster}: taking over shard {shard} in epoch {epoch}; reading the captures from NATS"
            ));
        }
        NodeStatus::Holder { shard, epoch, node, segments, bytes, took } => terminal::say(format_args!(
            "cluster {cluster}: active for shard {shard} in epoch {epoch}; node {node}; read {segments} segments with \
             {bytes} bytes in {:.1} s",
            took.as_secs_f64()
        )),
    }
}

/// Says where the requests of a standby go.
fn standby(holders: &[Option<String>]) -> String {
    match holders {
        [None] => "no node is active yet".to_owned(),
        [Some(holder)] => format!("standby; requests go to {holder}"),
        _ => {
            let urls: Vec<&str> = holders.iter().flatten().map(String::as_str).collect();
            let (active, all) = (urls.len(), holders.len());
            format!("standby; {active} of {all} shards have an active node: {}", urls.join(", "))
        }
    }
}
