//! The 57 event types of Integr8sCode, each defined once: fields, generation and category. The service registers them before it commits,
//! so that its own events are checked against them.
//!
//! Fields before a semicolon are required. Those after `default` may be absent, and those after `nullable` may be absent or null. What
//! every event of Integr8sCode carries (its id, time, aggregate and metadata) is part of an event of Annals, and not of its data.

use annals::Store;
use annals::runtime::types::type_of;
use annals::types::{TypeDefinition, TypeError};
use schemars::JsonSchema;

/// A time in RFC 3339.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "it is described and never read")]
struct Time(#[schemars(extend("format" = "date-time"))] String);

macro_rules! enums {
    ($($name:ident { $($value:ident),+ })+) => {$(
        #[derive(JsonSchema, Default)]
        #[serde(rename_all = "snake_case")]
        #[allow(dead_code, reason = "they are described and never read")]
        enum $name { #[default] $($value),+ }
    )+};
}

// The first value of each is its default.
enums! {
    Priority { Normal, Critical, High, Low, Background }
    ErrorKind { SystemError, Timeout, ResourceLimit, ScriptError, PermissionDenied }
    Storage { Database, S3, Filesystem, Redis }
    Login { Password, Oauth, Sso, ApiKey }
    Channel { InApp, Webhook, Slack }
    Severity { Low, Medium, High, Urgent }
}

/// What an execution used.
#[derive(JsonSchema)]
#[serde(default)]
#[derive(Default)]
#[allow(dead_code, reason = "it is described and never read")]
struct Usage {
    execution_time_wall_seconds: f64,
    cpu_time_jiffies: u64,
    clk_tck_hertz: u64,
    peak_memory_kb: u64,
}

/// A container of a pod.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "it is described and never read")]
struct Container {
    name: String,
    #[serde(default)]
    ready: bool,
    #[serde(default)]
    restart_count: i64,
    #[serde(default)]
    state: String,
}

macro_rules! types {
    ($($category:literal { $(
        $name:ident { $($field:ident: $kind:ty),* $(; default $($other:ident: $of:ty),+)? $(; nullable $($maybe:ident: $some:ty),+)? }
    )+ })+) => {
        /// Returns every type, in the order of the list.
        pub fn definitions() -> Vec<TypeDefinition> {
            let mut all = Vec::new();
            $($({
                #[derive(JsonSchema)]
                #[allow(non_camel_case_types, reason = "it is called like its event type")]
                #[allow(dead_code, reason = "the fields are described and never read")]
                struct $name {
                    $($field: $kind,)*
                    $($(#[serde(default)] $other: $of,)+)?
                    $($(#[serde(default)] $maybe: Option<$some>,)+)?
                }
                all.push(type_of::<$name>(stringify!($name)).category($category));
            })+)+
            all
        }
    };
}

types! {
    "execution" {
        execution_requested {
            execution_id: String, script: String, language: String, language_version: String, runtime_image: String,
            runtime_command: Vec<String>, runtime_filename: String, timeout_seconds: i64, cpu_limit: String,
            memory_limit: String, cpu_request: String, memory_request: String; default priority: Priority
        }
        execution_accepted {
            execution_id: String, queue_position: i64; default priority: Priority; nullable estimated_wait_seconds: f64
        }
        execution_queued { execution_id: String; nullable position_in_queue: i64, estimated_start_time: Time }
        execution_started { execution_id: String, pod_name: String; nullable node_name: String, container_id: String }
        execution_running { execution_id: String, pod_name: String; nullable progress_percentage: i64 }
        execution_completed {
            execution_id: String, exit_code: i64; default stdout: String, stderr: String; nullable resource_usage: Usage
        }
        execution_failed {
            execution_id: String, error_type: ErrorKind; default exit_code: i64, stdout: String, stderr: String;
            nullable resource_usage: Usage
        }
        execution_timeout {
            execution_id: String, timeout_seconds: i64; default stdout: String, stderr: String;
            nullable resource_usage: Usage
        }
        execution_cancelled { execution_id: String, cancelled_by: String; default force_terminated: bool }
    }
    "pod" {
        pod_created { execution_id: String, pod_name: String; default namespace: String }
        pod_scheduled { execution_id: String, pod_name: String; default node_name: String }
        pod_running { execution_id: String, pod_name: String; default container_statuses: Vec<Container> }
        pod_succeeded {
            execution_id: String, pod_name: String; default exit_code: i64; nullable stdout: String, stderr: String
        }
        pod_failed {
            execution_id: String, pod_name: String; default exit_code: i64;
            nullable reason: String, message: String, stdout: String, stderr: String
        }
        pod_terminated {
            execution_id: String, pod_name: String; default exit_code: i64; nullable reason: String, message: String
        }
        pod_deleted { execution_id: String, pod_name: String; nullable reason: String }
    }
    "command" {
        create_pod_command {
            saga_id: String, execution_id: String, script: String, language: String, language_version: String,
            runtime_image: String, runtime_filename: String, timeout_seconds: i64, cpu_limit: String,
            memory_limit: String, cpu_request: String, memory_request: String;
            default runtime_command: Vec<String>, priority: Priority
        }
        delete_pod_command {
            saga_id: String, execution_id: String, reason: String; nullable pod_name: String, namespace: String
        }
        allocate_resources_command { execution_id: String, cpu_request: String, memory_request: String }
        release_resources_command { execution_id: String, cpu_request: String, memory_request: String }
    }
    "result" {
        result_stored { execution_id: String; default storage_path: String, size_bytes: i64; nullable storage_type: Storage }
        result_failed { execution_id: String; nullable storage_type: Storage }
    }
    "user" {
        user_registered { user_id: String, username: String, email: String }
        user_login { user_id: String, login_method: Login; nullable ip_address: String, user_agent: String }
        user_logged_in { user_id: String, login_method: Login; nullable ip_address: String, user_agent: String }
        user_logged_out { user_id: String; nullable logout_reason: String }
        user_updated { user_id: String; default updated_fields: Vec<String>; nullable updated_by: String }
        user_deleted { user_id: String; nullable deleted_by: String, reason: String }
        user_settings_updated { user_id: String; default changed_fields: Vec<String>; nullable reason: String }
    }
    "security" {
        security_violation { violation_type: String, details: String; nullable user_id: String, ip_address: String }
        rate_limit_exceeded { endpoint: String, limit: i64, window_seconds: i64; nullable user_id: String }
        auth_failed { reason: String; nullable username: String, ip_address: String }
    }
    "default" {
        notification_created {
            notification_id: String, user_id: String, subject: String, body: String, severity: Severity;
            default tags: Vec<String>, channels: Vec<Channel>
        }
        notification_sent { notification_id: String, user_id: String, channel: Channel, sent_at: Time }
        notification_delivered { notification_id: String, user_id: String, channel: Channel, delivered_at: Time }
        notification_failed {
            notification_id: String, user_id: String, channel: Channel, error: String; default retry_count: i64
        }
        notification_read { notification_id: String, user_id: String, read_at: Time }
        notification_all_read { user_id: String, count: i64, read_at: Time }
        notification_clicked { notification_id: String, user_id: String, clicked_at: Time; nullable action: String }
        notification_preferences_updated { user_id: String; default changed_fields: Vec<String> }
        saga_started { saga_id: String, saga_name: String, execution_id: String, initial_event_id: String }
        saga_completed { saga_id: String, saga_name: String, execution_id: String; default completed_steps: Vec<String> }
        saga_failed { saga_id: String, saga_name: String, execution_id: String, failed_step: String, error: String }
        saga_cancelled {
            saga_id: String, saga_name: String, execution_id: String, reason: String;
            default completed_steps: Vec<String>, compensated_steps: Vec<String>;
            nullable cancelled_at: Time, cancelled_by: String
        }
        saga_compensating { saga_id: String, saga_name: String, execution_id: String, compensating_step: String }
        saga_compensated {
            saga_id: String, saga_name: String, execution_id: String; default compensated_steps: Vec<String>
        }
        script_saved { script_id: String, user_id: String, title: String, language: String }
        script_deleted { script_id: String, user_id: String; nullable deleted_by: String }
        script_shared { script_id: String, shared_by: String, permissions: String; default shared_with: Vec<String> }
        resource_limit_exceeded { resource_type: String, limit: i64, requested: i64; nullable user_id: String }
        quota_exceeded { quota_type: String, limit: i64, current_usage: i64, user_id: String }
        system_error { error_type: String, message: String, service_name: String; nullable stack_trace: String }
        service_unhealthy { service_name: String, health_check: String, reason: String }
        service_recovered { service_name: String, health_check: String, downtime_seconds: i64 }
        dlq_message_received {
            dlq_event_id: String, original_topic: String, original_event_type: String, error: String, retry_count: i64,
            producer_id: String, failed_at: Time
        }
        dlq_message_retried {
            dlq_event_id: String, original_topic: String, original_event_type: String, retry_count: i64,
            retry_topic: String
        }
        dlq_message_discarded {
            dlq_event_id: String, original_topic: String, original_event_type: String, reason: String, retry_count: i64
        }
    }
}

/// Registers every type with the default tenant of a store.
pub(crate) async fn register(store: &dyn Store) -> Result<(), TypeError> {
    let unknown = |error: annals::UnknownLog| annals::Invalid::new(error.code(), "tenant", error.to_string());
    let types = store.event_types(annals::DEFAULT_TENANT).map_err(unknown)?;
    for definition in definitions() {
        types.put(definition).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use annals::{CommitError, DEFAULT_SCOPE, DEFAULT_TENANT, Data, NewCommit, NewEvent};
    use serde_json::json;

    use super::*;

    #[test]
    fn every_type_is_defined_once_with_its_category() {
        let all = definitions();
        let names: BTreeSet<&str> = all.iter().map(|it| &*it.name).collect();
        assert_eq!((all.len(), names.len()), (57, 57));
        let is_plain = |name: &&str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        assert!(names.iter().all(is_plain));
        let mut counts = BTreeMap::new();
        all.iter().for_each(|it| *counts.entry(&*it.category).or_insert(0) += 1);
        let expected = [
            ("command", 4),
            ("default", 25),
            ("execution", 9),
            ("pod", 7),
            ("result", 2),
            ("security", 3),
            ("user", 7),
        ];
        assert_eq!(counts, BTreeMap::from(expected));
        assert!(all.iter().all(|it| it.validate().is_ok()));
    }

    #[tokio::test]
    async fn what_the_service_commits_is_checked_against_its_type() {
        let store = annals::open("memory:").await.expect("opened");
        register(&*store).await.expect("registered");
        register(&*store).await.expect("and again");
        let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
        let commit = async |event_type: &'static str, data: serde_json::Value| {
            let event = NewEvent::new(event_type, Data::from_value(&data).expect("a document"));
            log.commit(NewCommit::new("execution", "x-1").event(event)).await
        };
        commit("execution_started", json!({"execution_id": "x-1", "pod_name": "p", "node_name": null}))
            .await
            .expect("valid");
        commit("user_settings_updated", json!({"user_id": "u", "theme": "dark"}))
            .await
            .expect("further fields are allowed");
        let running = json!({"execution_id": "x-1", "pod_name": "p", "container_statuses": [{"name": "c", "restart_count": "x"}]});
        for (event_type, data, path) in [
            ("execution_started", json!({"execution_id": "x-1"}), "events[0].data.pod_name"),
            ("execution_completed", json!({"execution_id": "x-1", "exit_code": "0"}), "events[0].data.exit_code"),
            ("execution_failed", json!({"execution_id": "x-1", "error_type": "bad luck"}), "events[0].data.error_type"),
            ("pod_running", running, "events[0].data.container_statuses[0].restart_count"),
        ] {
            match commit(event_type, data).await.expect_err("does not match") {
                CommitError::Invalid(invalid) => assert_eq!(invalid.path, path, "{event_type}"),
                other => panic!("{other}"),
            }
        }
        store.close().await;
    }
}
