//! Requests that wait until there is something newer than the caller knows: `past` and `timeout_ms`.

use annals_core::Code;
use serde::Deserialize;
use tokio::time::{Duration, timeout};
use utoipa::IntoParams;

use crate::problem::Problem;
use crate::query::Number;
use crate::state::Server;

/// The parameters of a question that has no others.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitQuery {
    /// Waits until there is something past this.
    #[param(inline)]
    pub past: Option<Number>,
    /// How long to wait, in milliseconds: at most 50,000, 20,000 when absent.
    #[param(inline)]
    pub timeout_ms: Option<Number>,
}

/// How long a request waits by default, and at most. No connection is held longer without a response.
const WAIT_USUAL: Duration = Duration::from_secs(20);
const WAIT_MAX: Duration = Duration::from_secs(50);

/// A wait for something newer than the caller knows, with its time limit.
pub(super) struct Wait {
    pub past: u64,
    most: Duration,
}

impl Wait {
    /// Returns the wait that a query asks for, or `None` if it should be answered at once.
    pub fn of(past: Option<Number>, timeout_ms: Option<Number>) -> Result<Option<Self>, Problem> {
        let Some(Number(past)) = past else {
            return match timeout_ms {
                Some(_) => Err(Problem::query("timeout_ms", "is only valid together with past")),
                None => Ok(None),
            };
        };
        let most = timeout_ms.map_or(WAIT_USUAL, |ms| Duration::from_millis(ms.0));
        if most > WAIT_MAX {
            let message = format!("is {} ms, but at most {} ms are allowed", most.as_millis(), WAIT_MAX.as_millis());
            return Err(Problem::query("timeout_ms", message));
        }
        Ok(Some(Self { past, most }))
    }

    /// Waits until `happens` completes or the time is up.
    pub async fn until<T, E: Into<Problem>>(
        &self,
        server: &Server,
        happens: impl Future<Output = Result<T, E>>,
    ) -> Result<(), Problem> {
        tokio::select! {
            happened = timeout(self.most, happens) => match happened {
                Ok(Err(error)) => Err(error.into()),
                Ok(Ok(_)) | Err(_) => Ok(()),
            },
            () = server.options.stop.stopped() => {
                Err(Problem::new(Code::Closing, "the server is shutting down; wait again after its restart"))
            }
        }
    }
}
