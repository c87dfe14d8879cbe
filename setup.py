"""Packaging of redcal_spark; the exact versions it is tested with are in requirements.lock."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
README = ROOT / "README.md"
# The version's one source; read, not imported, so that a build needs no numpy.
INIT = (ROOT / "redcal_spark" / "__init__.py").read_text(encoding="utf-8")
(VERSION,) = re.findall(r'^__version__ = "(.+)"$', INIT, re.MULTILINE)

# Floors are the oldest versions that `make test-versions` runs on, those of Databricks 17.3:
# nothing of a platform's own is replaced.
BASE = [
    "numpy>=2.1",
    "pyarrow>=19",
    "deltalake>=1.6",
    "pydantic>=2.10,<3",
    "PyYAML>=6",
    "rich>=13",
    "threadpoolctl>=3.2",
]

# A range, not a pin: a pin would replace the Spark that a platform brings along. Every Spark from
# 4.0 to the newest that delta-spark takes; its releases before 4.2 take any, but have no jars for
# later ones. delta-spark 4.4.1 has no jars in the Maven repository.
# Spark Connect needs pandas, and PySpark 4.2 warns on pandas 3.
SPARK = ["pyspark>=4.0,<=4.2.0", "delta-spark>=4.0,<4.5,!=4.4.1", "pandas>=2.2,<3"]

REPORT = ["jinja2>=3.1"]

# Cards and charts in notebooks, tables as data frames.
NOTEBOOK = [*REPORT, "matplotlib>=3.8", "pandas>=2.2,<3"]

# The client alone: the full package wants an older pyarrow, and pip would go back years for it.
MLFLOW = ["mlflow-skinny>=3.1", "pandas>=2.2,<3"]

# What `pyspark[connect]` asks for, so that the contract suite can run through Spark Connect.
CONNECT = [
    "grpcio>=1.76",
    "grpcio-status>=1.76",
    "googleapis-common-protos>=1.71",
    "zstandard>=0.25",
]

DEV = [
    *CONNECT,
    # Tables that people hold, and the SQL that `redcal export` writes.
    "duckdb>=1.2",
    "hypothesis>=6.100",
    "jsonschema>=4.20",
    # For the notebooks and the charts of the benchmarks.
    "matplotlib>=3.8",
    "mypy>=1.13",
    "pandas-stubs>=2.2,<3",
    "polars>=1.0",
    "pre-commit>=3.7",
    "pytest>=8.2",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.6",
    "ruff>=0.8",
    "scikit-learn>=1.6",
    "scipy>=1.12",
    "types-PyYAML>=6",
    "uv>=0.9",
    # `make` installs the package without build isolation, so the lock must hold its builders.
    "setuptools>=77",
    "wheel>=0.43",
]

# `make docs`; the pages are Markdown, the Python reference comes from docstrings.
DOCS = ["mkdocs>=1.6,<2", "mkdocs-material>=9.5,<10", "mkdocstrings[python]>=0.27"]

setup(
    name="redcal-spark",
    version=VERSION,
    description="Reconcile two models that score the same rows but lead to different decisions.",
    long_description=README.read_text(encoding="utf-8") if README.exists() else "",
    long_description_content_type="text/markdown",
    author="the redcal_spark authors",
    project_urls={"Paper": "https://arxiv.org/abs/2405.19667"},
    keywords="calibration decisions delta lakehouse model-multiplicity spark",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11",
    packages=find_packages(include=["redcal_spark", "redcal_spark.*"]),
    package_data={"redcal_spark": ["py.typed"], "redcal_spark.report": ["templates/*"]},
    install_requires=BASE,
    extras_require={
        "spark": SPARK,
        "report": REPORT,
        "notebook": NOTEBOOK,
        "mlflow": MLFLOW,
        "dev": DEV,
        "docs": DOCS,
    },
    entry_points={
        "console_scripts": [
            "redcal = redcal_spark.cli:main",
            # for Databricks, where a task that fails must raise
            "redcal-task = redcal_spark.cli.databricks:task",
        ]
    },
    zip_safe=False,
)
