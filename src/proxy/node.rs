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
        NodeStatus::Standby(None) => terminal::say(format_args!("cluster {cluster}: no node is active yet")),
        NodeStatus::Standby(Some(holder)) => {
            terminal::say(format_args!("cluster {cluster}: standby; requests go to {holder}"));
        }
        NodeStatus::Restoring { epoch } => {
            terminal::say(format_args!(
                "cluster {cluster}: taking over in epoch {epoch}; reading the captures from NATS"
            ));
        }
        NodeStatus::Holder { epoch, segments, bytes, took } => terminal::say(format_args!(
            "cluster {cluster}: active in epoch {epoch}; read {segments} segments with {bytes} bytes in {:.1} s",
            took.as_secs_f64()
        )),
    }
}
