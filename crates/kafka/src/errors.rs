//! Maps Kafka's errors to errors of the port.

use annals_core::BrokerError;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Kafka;

/// Converts the error of a call that changed nothing.
pub fn of(error: KafkaError) -> BrokerError {
    match error.rdkafka_error_code() {
        Some(code) => of_code(code, error.to_string()),
        None => BrokerError::Unavailable(error.to_string()),
    }
}

/// Converts the error of a call about this topic.
pub fn of_topic(topic: &str, code: Kafka) -> BrokerError {
    match code {
        Kafka::UnknownTopicOrPartition | Kafka::UnknownTopic | Kafka::UnknownPartition => {
            BrokerError::UnknownTopic(topic.into())
        }
        code => of_code(code, format!("topic {topic:?}: {code}")),
    }
}

fn of_code(code: Kafka, message: String) -> BrokerError {
    match code {
        code if is_fenced(code) => BrokerError::Fenced,
        Kafka::TopicAuthorizationFailed
        | Kafka::GroupAuthorizationFailed
        | Kafka::ClusterAuthorizationFailed
        | Kafka::TransactionalIdAuthorizationFailed
        | Kafka::Authentication
        | Kafka::SaslAuthenticationFailed
        | Kafka::InvalidTopic
        | Kafka::InvalidPartitions
        | Kafka::InvalidReplicationFactor
        | Kafka::InvalidConfig
        | Kafka::InvalidRequest
        | Kafka::PolicyViolation
        | Kafka::NonEmptyGroup
        | Kafka::UnsupportedVersion
        | Kafka::UnsupportedFeature => BrokerError::Refused(message),
        _ => BrokerError::Unavailable(message),
    }
}

/// Returns whether another producer has taken over.
pub fn is_fenced(code: Kafka) -> bool {
    matches!(code, Kafka::Fenced | Kafka::ProducerFenced | Kafka::InvalidProducerEpoch)
}

/// Returns whether the cluster would refuse the same message again because of its size.
pub fn is_too_large(code: Kafka) -> bool {
    matches!(code, Kafka::MessageSizeTooLarge | Kafka::MessageBatchTooLarge | Kafka::InvalidMessageSize)
}
