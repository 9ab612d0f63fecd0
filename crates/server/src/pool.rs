//! Runs long queries on a few low-priority threads of their own, so that commits and short reads never wait for them.
//!
//! A query begins on the task of its request. If it has not finished when it first yields, it moves to the pool, where queries take
//! turns. It is aborted when its client disconnects or its time limit is exceeded.

use std::pin::Pin;
use std::sync::OnceLock;
use std::task::Poll;
use std::time::Duration;

use annals_core::{Code, Invalid};
use futures_util::future::poll_fn;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::problem::Problem;

/// How much lower the priority of these threads is than that of all others, as a nice value.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// The threads of long queries, which start with the first one.
#[derive(Default)]
pub(crate) struct Pool(OnceLock<Option<Runtime>>);

/// A query in the pool, which is aborted when its request is dropped.
struct Running<T>(JoinHandle<T>);

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Pool {
    /// Runs a query for at most `longest`.
    pub async fn run<T, E>(
        &self,
        longest: Duration,
        query: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, Problem>
    where
        T: Send + 'static,
        E: Send + 'static,
        Problem: From<E>,
    {
        let mut query: Pin<Box<dyn Future<Output = Result<T, E>> + Send>> = Box::pin(query);
        let first = poll_fn(|cx| {
            Poll::Ready(match query.as_mut().poll(cx) {
                Poll::Ready(done) => Some(done),
                Poll::Pending => None,
            })
        });
        if let Some(done) = first.await {
            return Ok(done?);
        }
        let Some(runtime) = self.runtime() else { return Ok(query.await?) };
        let mut running = Running(runtime.spawn(query));
        match timeout(longest, &mut running.0).await {
            Ok(Ok(done)) => Ok(done?),
            Ok(Err(error)) => {
                Err(Problem::new(Code::Internal, format!("the query panicked or was cancelled: {error}")))
            }
            Err(_) => {
                let message = format!("the query was stopped after {longest:?}");
                Err(Invalid::new(Code::QueryTookTooLong, "condition", message).into())
            }
        }
    }

    /// Returns the threads, or `None` if they could not be started.
    fn runtime(&self) -> Option<&Runtime> {
        let made = self.0.get_or_init(|| {
            let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads((cores / 2).max(1)).thread_name("annals-query").enable_all();
            // On systems where a thread has no priority of its own, queries run at the priority of the process.
            #[cfg(target_os = "linux")]
            builder.on_thread_start(|| {
                if let Err(error) = rustix::process::setpriority_process(None, NICE) {
                    tracing::debug!(%error, "could not lower the priority of a thread for long queries");
                }
            });
            builder
                .build()
                .inspect_err(|error| tracing::error!(%error, "could not start threads for long queries"))
                .ok()
        });
        made.as_ref()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(Some(runtime)) = self.0.take() {
            // It may be dropped where blocking is not allowed. The queries were aborted when their requests were dropped.
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    /// Longer than anything takes here, and shorter than a query may take.
    const DEADLINE: Duration = Duration::from_secs(30);
    const LONGEST: Duration = Duration::from_secs(3_600);

    /// A part of a query, which says that it was dropped.
    struct Part(Option<oneshot::Sender<()>>);

    impl Drop for Part {
        fn drop(&mut self) {
            if let Some(ended) = self.0.take() {
                let _ = ended.send(());
            }
        }
    }

    #[tokio::test]
    async fn a_query_ends_when_its_client_is_gone() {
        let pool = Pool::default();
        let (begun, has_begun) = oneshot::channel::<()>();
        let (ended, has_ended) = oneshot::channel::<()>();
        let part = Part(Some(ended));
        let query = async move {
            let _part = part;
            // The first turn is on the task that asks, the next one in the pool.
            tokio::task::yield_now().await;
            let _ = begun.send(());
            std::future::pending::<Result<(), Invalid>>().await
        };
        let mut asking = Box::pin(pool.run(LONGEST, query));
        tokio::select! {
            _ = &mut asking => panic!("the query never ends by itself"),
            begun = has_begun => begun.expect("it goes on in the pool"),
        }
        // As a server does with the handler of a request whose connection has closed.
        drop(asking);
        timeout(DEADLINE, has_ended).await.expect("it ends soon").expect("its parts are dropped");
    }
}
