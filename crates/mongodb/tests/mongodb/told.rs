//! What the store logs, kept for the tests that look at it.

use std::fmt::{self, Write as _};
use std::sync::{Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

static TOLD: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());

/// Begins to show and to keep what is logged by any test of this program.
pub fn listen() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        let shown = tracing_subscriber::fmt::layer().with_test_writer().with_filter(LevelFilter::INFO);
        let subscriber = tracing_subscriber::registry().with(shown).with(Kept);
        tracing::subscriber::set_global_default(subscriber).expect("nothing else listens");
    });
}

/// What was logged at a level about what has this text in its fields, such as the name of a test's database.
pub fn told(level: Level, about: &str) -> Vec<String> {
    let told = TOLD.lock().expect("no test panics while it holds this");
    told.iter().filter(|(at, text)| *at == level && text.contains(about)).map(|(_, text)| text.clone()).collect()
}

struct Kept;

impl<S: Subscriber> Layer<S> for Kept {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO || !metadata.target().starts_with("annals") {
            return;
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        TOLD.lock().expect("no test panics while it holds this").push((*metadata.level(), text.0));
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}
