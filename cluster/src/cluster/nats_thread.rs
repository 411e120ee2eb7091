//! The thread of a connection to NATS.
//!
//! A record passes several tasks on its way to NATS and back: the one that sends it, and those of the client. On a thread of
//! their own, these tasks wake no other thread for one another. And a lease is renewed in time while the threads of the agents'
//! calls are busy.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Runs tasks of a connection. The thread ends when the last clone is dropped, and its tasks with it.
#[derive(Clone, Debug)]
pub(crate) struct NatsThread {
    tasks: Handle,
    _ends: Arc<watch::Sender<()>>,
}

impl NatsThread {
    /// # Errors
    /// The system refuses the thread, or the files of a runtime.
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let tasks = runtime.handle().clone();
        let (ends, mut is_used) = watch::channel(());
        // The sender sends nothing, so a change is its end.
        let run = move || drop(runtime.block_on(is_used.changed()));
        thread::Builder::new().name("nats".to_owned()).spawn(run)?;
        Ok(Self { tasks, _ends: Arc::new(ends) })
    }

    /// Runs a task, which must never block.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.tasks.spawn(task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_run_on_one_thread_which_ends_with_its_last_user() {
        let thread = NatsThread::start().unwrap();
        let name = || thread::current().name().map(str::to_owned);
        let (first, second) = (thread.spawn(async move { name() }), thread.spawn(async move { name() }));
        assert_eq!(
            (first.await.unwrap(), second.await.unwrap()),
            (Some("nats".to_owned()), Some("nats".to_owned()))
        );
        let endless = thread.spawn(std::future::pending::<()>());
        drop(thread);
        assert!(endless.await.unwrap_err().is_cancelled());
    }
}
