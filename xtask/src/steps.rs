//! The steps of a longer run. Each is announced, timed and listed at the end, and the first failure ends the run.

use std::time::{Duration, Instant};

/// The outcome of a step that found nothing wrong.
pub enum Step {
    /// It ran.
    Passed,
    /// It could not run here. The sentence says why and what to install.
    NotRun(String),
}

/// The steps so far.
#[derive(Default)]
pub struct Steps {
    ended: Vec<(String, Duration, &'static str)>,
}

impl Steps {
    /// Runs a step that must not be skipped.
    pub fn run(&mut self, name: &str, step: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        self.run_if_possible(name, || step().map(|()| Step::Passed))
    }

    /// Runs a step that may be unable to run here.
    pub fn run_if_possible(&mut self, name: &str, step: impl FnOnce() -> Result<Step, String>) -> Result<(), String> {
        println!("\n=== {name}");
        let started = now();
        let outcome = step();
        let took = started.elapsed();
        let ended = match &outcome {
            Ok(Step::Passed) => "ok",
            Ok(Step::NotRun(why)) => {
                println!("NOT RUN: {why}");
                "NOT RUN (the reason stands above)"
            }
            Err(_) => "FAILED",
        };
        self.ended.push((name.to_owned(), took, ended));
        outcome.map(|_| ()).map_err(|sentence| {
            self.summarise();
            format!("{name}: {sentence}")
        })
    }

    /// Lists the steps and how long each took.
    pub fn summarise(&self) {
        println!("\n=== summary");
        for (name, took, ended) in &self.ended {
            println!("{:>8.1} s  {name}: {ended}", took.as_secs_f64());
        }
        let total: Duration = self.ended.iter().map(|(_, took, _)| *took).sum();
        println!("{:>8.1} s  in all", total.as_secs_f64());
    }
}

#[expect(clippy::disallowed_methods, reason = "durations that are shown to people")]
pub fn now() -> Instant {
    Instant::now()
}
