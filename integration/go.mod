module github.com/redlatch/redlatch/integration

go 1.26

require go.uber.org/goleak v1.3.0

replace github.com/redlatch/redlatch => ../
