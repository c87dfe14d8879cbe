"""The model registry: pairs as MLflow's models, and runs as MLflow's runs."""
