//! `annals demo` in a browser: a program goes from the form of its page through saga, queue and worker to its result.

use std::time::Duration;

use serde_json::json;

use crate::browser::Browser;
use crate::demo::Demo;
use crate::run::folder;

/// No wait for what a page shows takes longer; reaching it is a failure.
const DEADLINE: Duration = Duration::from_secs(60);

/// Loads a page until an expression is true in it.
async fn shows(browser: &Browser, url: &str, expression: &str) {
    let script = format!("return Boolean({expression})");
    let shown = async {
        loop {
            browser.go_to(url).await;
            if browser.evaluate(&script).await == json!(true) {
                return;
            }
        }
    };
    let is_shown = tokio::time::timeout(DEADLINE, shown).await.is_ok();
    assert!(is_shown, "{url}: {expression}: {}", browser.source().await);
}

/// Waits until an expression is true in the page that is shown, which is not loaded again.
async fn becomes(browser: &Browser, expression: &str) {
    let script = format!("return Boolean({expression})");
    let shown = async { while browser.evaluate(&script).await != json!(true) {} };
    let is_shown = tokio::time::timeout(DEADLINE, shown).await.is_ok();
    assert!(is_shown, "{expression}: {}", browser.source().await);
}

/// Whether a row of a table of the console has all of these texts.
fn row_of(table: &str, texts: &[&str]) -> String {
    let texts = json!(texts);
    format!(
        "[...document.querySelectorAll('#{table} tbody tr')].some(row => {texts}.every(it => row.textContent.includes(it)))"
    )
}

/// Whether the history that the demo's page shows has all of these texts.
fn history_of(texts: &[&str]) -> String {
    let texts = json!(texts);
    format!("{texts}.every(it => document.getElementById('detail').textContent.includes(it))")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_from_the_form_is_seen_in_its_saga_in_the_queue_and_with_its_result() {
    let folder = folder();
    let mut demo = Demo::start(folder.path(), &[]);
    let url = demo.address();
    let page = format!("{url}/executions");
    let browser = Browser::start().await;
    browser.go_to(&page).await;
    browser.until("document.getElementById('link').dataset.state === 'live'").await;
    for (field, value) in [("language", "sh"), ("priority", "critical"), ("timeout", "60")] {
        let chosen = format!(
            "const field = document.getElementById('{field}'); field.value = '{value}'; field.dispatchEvent(new Event('change'))"
        );
        browser.evaluate(&chosen).await;
    }
    // It runs until the test lets it end.
    let gate = folder.path().join("gate");
    browser.evaluate("const script = document.getElementById('script'); script.focus(); script.select()").await;
    browser.press(&format!("until [ -e {} ]; do sleep 0.1; done; echo from the form", gate.display())).await;
    browser.evaluate("document.getElementById('send').click()").await;
    browser.until("document.getElementById('said').textContent.startsWith('Submitted as')").await;
    let id = browser.evaluate("return location.hash.split('/')[1]").await;
    let id = id.as_str().expect("the page shows its history").to_owned();

    // While it runs, its saga has come to the last step, and it has a slot of the queue.
    browser.until(&history_of(&["pod_running", "running: ", "validate_execution, allocate_resources"])).await;
    let sagas = format!("{url}/console/sagas?execution_id={id}");
    shows(&browser, &sagas, &row_of("sagas", &[&id, "running"])).await;
    browser.evaluate("document.querySelector('#sagas tbody a').click()").await;
    let title = format!("Saga execution_saga of {id}");
    browser.until(&format!("document.querySelector('h1')?.textContent === '{title}'")).await;
    let saga = browser.evaluate("return location.href").await;
    let saga = saga.as_str().expect("an address");
    let steps = ["validate_execution", "allocate_resources", "create_pod", "await_result"];
    shows(&browser, saga, &steps.map(|step| row_of("steps", &[step])).join(" && ")).await;
    let queue = format!("{url}/console/queues?name=executions");
    let is_active = row_of("items", &[&id, "active"]);
    shows(&browser, &queue, &is_active).await;
    browser.go_to(&format!("{page}#execution/{id}")).await;
    browser.until("/^Queue: [12] of 2 slots taken/.test(document.getElementById('queue').textContent)").await;

    // Its output and its result; the slot is free again, and what the saga held is released.
    std::fs::write(&gate, "").expect("written");
    browser
        .until("[...document.querySelectorAll('#detail pre')].some(it => it.textContent === 'from the form\\n')")
        .await;
    browser
        .until("[...document.querySelectorAll('#detail .type')].some(it => it.textContent === 'result_stored')")
        .await;
    shows(&browser, &sagas, &row_of("sagas", &[&id, "completed"])).await;
    shows(&browser, saga, &row_of("steps", &["release_resources"])).await;
    shows(
        &browser,
        &queue,
        &format!("document.querySelector('h1')?.textContent === 'Queue executions' && !{is_active}"),
    )
    .await;
    browser.go_to(&format!("{page}#execution/{id}")).await;
    browser.until(&history_of(&["Statuscompleted", "Sagacompleted", "Undonerelease_resources", "Resultstored"])).await;
    browser.picture("demo").await;
    browser.end().await;
    demo.stop("INT");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_stays_open_shows_that_a_saga_has_ended_and_that_no_slot_is_taken() {
    let folder = folder();
    let mut demo = Demo::start(folder.path(), &[]);
    let page = format!("{}/executions", demo.address());
    let browser = Browser::start().await;
    browser.go_to(&page).await;
    browser.until("document.getElementById('link').dataset.state === 'live'").await;
    for (field, value) in [("language", "sh"), ("priority", "critical"), ("script", "echo seen")] {
        browser.evaluate(&format!("document.getElementById('{field}').value = '{value}'")).await;
    }
    browser.evaluate("document.getElementById('send').click()").await;
    becomes(&browser, "document.getElementById('said').textContent.startsWith('Submitted as')").await;
    // The saga ends after the last event of its execution, and the queue is empty after the last event of all.
    becomes(&browser, &history_of(&["Statuscompleted", "Sagacompleted", "Resultstored"])).await;
    becomes(&browser, "document.getElementById('queue').textContent === 'Queue: 0 of 2 slots taken, 0 waiting'").await;
    browser.end().await;
    demo.stop("INT");
}
