//! The console as a browser sees it: a real server on the loopback interface over the embedded store. What needs no browser is tested with
//! plain HTTP; modules whose names begin with `with_chromium` drive a headless Chromium.

mod acts;
mod archive;
mod browser;
mod content;
mod driving;
mod pages;
mod running;
mod secrets;
mod signing_in;
mod with_chromium;
mod with_chromium_acts;
mod with_chromium_archive;
mod with_chromium_each_act;
mod with_chromium_hostile;
mod with_chromium_keyboard;
mod with_chromium_prepared_acts;
