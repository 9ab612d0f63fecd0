//! `annals demo`.

use crate::args::{Demo, Global};
use crate::failure::{Failure, Stop};

pub async fn run(global: &Global, args: &Demo) -> Result<(), Stop> {
    let _ = (global, args);
    Err(Failure::internal("the demo is not part of this build yet").into())
}
